"""The papers' experiments, one file each: ``transformula reproduce NAME``."""

from __future__ import annotations

from importlib import import_module

from transformula.optional import require
from transformula.studies.study_report import Report, StudyRun

__all__ = ["STUDIES", "Report", "StudyRun", "run_study"]

#: Name → (module, description); the study is the module's function of that name.
STUDIES = {
    "fang-f1": ("fang_study", "Fang, Figure 2: 41 parameters learn x1² + x2² where two ReLU networks fail"),
    "fang-f2": ("fang_f2_study", "Fang, Table 1 and Figure 3: f2* by the paper's training, beside two ReLU networks"),
    "fang-closed-form": (
        "fang_study",
        "f1* and f2* by least squares: the statistical limit in seconds",
    ),
    "sine-sum": ("gumaan_study", "Gumaan VI-A: sin x1 + sin x2, trained error against heads and width"),
    "existence-vs-training": (
        "gumaan_study",
        "Gumaan VI-C: one architecture, constructed against trained",
    ),
    "sorting": ("gumaan_study", "Gumaan VI-A: sorting by one layer, constructed, memorised and trained"),
    "memorization": ("memorization_study", "Gumaan VI-A: any finite map, proven against trained"),
    "distillation": ("gumaan_study", "Gumaan VI-B: a deep Transformer into one wide layer"),
    "rates": ("rates_study", "Gumaan, Theorem 1: error against tokens in 1 to 3 dimensions, with slopes"),
    "attention-only": ("rates_study", "Hu et al.: two softmax layers alone, error against tokens, with slopes"),
    "local-polynomials": ("rates_study", "Shi and Liao: local polynomials, error against cells"),
    "in-context": ("in_context_study", "ridge regression inside a Transformer: layers against accuracy"),
    "compact-memory": ("memorization_study", "labels as bits of words: parameters against samples"),
    "yun": ("yun_study", "Yun's stages beside Fang's blocks and Gumaan's layer: counts for one formula and tolerance"),
    "linear-attention": (
        "linear_attention_study",
        "linear attention by least squares, beside gradient training",
    ),
    "prune": ("prune_study", "numbers taken out of compiled models, proven again: error against non-zeros"),
    "coupling-rank": ("prune_study", "error against the dimension of a head, from singular values"),
}

#: Studies without training.
_BUILT = ("rates", "attention-only", "local-polynomials", "in-context", "compact-memory", "coupling-rank", "yun")


def run_study(name: str, seed: int = 0, size: str = "normal") -> Report:
    """Run one study.

    Parameters
    ----------
    name : one of `STUDIES`.
    seed : of the data and of training.
    size : "quick", "normal" or "full".
    """
    trained = () if name in _BUILT else ("sklearn", "torch")
    require(f"the study {name}", "matplotlib", *trained)
    module = import_module(f"transformula.studies.{STUDIES[name][0]}")
    report: Report = getattr(module, name.replace("-", "_"))(StudyRun(name, seed, size))
    return report
