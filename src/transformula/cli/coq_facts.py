"""``transformula verify --coq``: the theorem of a model checked by Coq, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from transformula import model_folder
from transformula.coq.coq_check import NATIVE, prove_folder
from transformula.coq.coq_compiler import find_coqc
from transformula.kernel.check import Verification

REAL_ARITHMETIC = "proven in real arithmetic, not in floating point"
PROVEN = f"{REAL_ARITHMETIC}: |exact function of the weights - formula| <= eps - rounding, and the formula is defined"


def check_theorem(folder: Path, result: Verification, floats: bool = True) -> tuple[Verification, dict[str, object]]:
    """The verification with Coq's verdict added, and the facts to print."""
    exported = folder / model_folder.COQ_FOLDER
    verdict = prove_folder(folder, exported if exported.is_dir() else None, floats=floats)
    native = sorted({name.partition(".")[0] for name in verdict.axioms} & set(NATIVE))
    reals = [name for name in verdict.axioms if name.partition(".")[0] not in NATIVE]
    facts: dict[str, object] = {
        "coq": PROVEN if verdict.proven else "not accepted",
        "coq_version": find_coqc().version,
        "coq_axioms": [*reals, *(f"{module} (native numbers)" for module in native)],
        "coq_files": {file.name: "cached" if file.cached else round(file.seconds, 2) for file in verdict.files},
        "coq_seconds": verdict.seconds,
        "coq_memory_mb": round(verdict.memory / 1e6),
    }
    return replace(result, verified=verdict.proven, reasons=verdict.reasons), facts
