"""Fang et al., Table 1 and Figure 3: f2* by the paper's training, beside two ReLU networks.

The full size (4368 tokens, 2000 epochs, batches of 25,000) is a GPU's work. The default is a
stated shorter run for a CPU. This file needs only torch, NumPy and SciPy, so that it runs where no more is
installed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from transformula.errors import InputError
from transformula.learn.gradient import FangModule, paper_directions
from transformula.studies.fang_data import Trained, f2_sample, paper_schedule, relu_network, train_model
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw

#: Training and test error, epochs to convergence and minutes on an A100, as far as the text is legible.
PAPER_TEST = {"attention": 0.109, "NN_width": 35.662}
CLIPS = (10.0, 100.0, 1000.0)


def fang_f2(run: StudyRun) -> Report:
    """Train the three models on the same rows."""
    rows, tokens, epochs, batch = run.pick(
        (6000, 128, 40, 2000), (45_000, 512, 100, 5000), (45_000, paper_directions(10, 5), 2000, 25_000)
    )
    full = run.size == "full"
    if full and not torch.cuda.is_available():
        raise InputError("the full size trains 4368 tokens for 2000 epochs, which takes a GPU: none was found")
    device, dtype = ("cuda", torch.float32) if full else ("cpu", torch.float64)
    sample = f2_sample(run.seed, rows)
    schedule = paper_schedule(epochs, batch, run.seed)
    widths = {"NN_depth": (10, *[120] * 6, 1), "NN_width": (10, tokens, 1)}
    done: list[tuple[Trained, float]] = []
    for name in ("attention", *widths):
        tried = []
        for clip in run.pick(CLIPS[1:2], CLIPS):
            module = (
                FangModule(10, 1, 5, tokens, run.seed) if name == "attention" else relu_network(widths[name], run.seed)
            )
            try:
                trained = train_model(
                    name, module, sample, replace(schedule, clip=clip), device, dtype, max(1, epochs // 100)
                )
            except FloatingPointError:
                continue
            tried.append((trained, clip))
        done.append(min(tried, key=lambda pair: pair[0].history.training[-1]))
    return report(run, done, (rows, tokens, epochs, batch), device)


def report(run: StudyRun, done: list[tuple[Trained, float]], sizes: tuple[int, int, int, int], device: str) -> Report:
    """Tables, sentences and figure from the trained models."""
    rows, tokens, epochs, batch = sizes
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    lines: list[list[Any]] = [
        [
            t.name,
            t.parameters,
            clip,
            t.history.training[-1],
            t.test_error,
            PAPER_TEST.get(t.name),
            t.epochs_to_convergence(),
            round(t.seconds, 1),
        ]
        for t, clip in done
    ]
    columns = ["model", "parameters", "clip", "training MSE", "noiseless test MSE", "the paper's test MSE"]
    columns += ["epochs to convergence", "seconds"]
    attention = done[0][0]
    findings = [
        f"Attention reaches a noiseless test error of {attention.test_error:.3g} after {epochs} epochs "
        f"(the paper: 0.109 after 2000), NN_depth {done[1][0].test_error:.3g} and NN_width "
        f"{done[2][0].test_error:.3g}.",
        "The paper does not say at which norm gradients are clipped: every model was trained with "
        + ", ".join(f"{c:g}" for c in run.pick(CLIPS[1:2], CLIPS))
        + ", and the one with the least training error is shown.",
    ]
    if run.size != "full":
        findings.append(
            f"This is a shorter run than the paper's: {tokens} tokens instead of 4368, {epochs} epochs "
            f"instead of 2000, batches of {batch} instead of 25,000. The full size is the paper's."
        )
    facts = {
        "curves": {t.name: [round(v, 5) for v in t.test_curve] for t, _ in done},
        "training": {t.name: _thin(t.history.training) for t, _ in done},
        "epochs": epochs,
        "paper_test": PAPER_TEST,
    }
    try:
        figure = figure_of(facts)
    except ImportError:  # a GPU machine without matplotlib: figure_of(facts) elsewhere
        figure = None
    return Report(
        run,
        "fang-f2: f2* by the paper's training",
        "Fang et al. (Table 1, Figure 3) train F, β and b on f2*, a polynomial of degree 5 in 10 variables "
        "with 7 terms, and compare ReLU networks with about as many parameters.",
        f"{rows} training rows from N(0, I) with unit noise, 5000 test rows without; {tokens} tokens, SGD "
        f"with momentum 0.9, {epochs} epochs, batches of {batch}, one-cycle learning rate 0.0001 to 0.001, "
        f"{'float32' if device == 'cuda' else 'float64'} on {name}. Seed {run.seed}.",
        [StudyTable("Table 1", columns, lines)],
        findings,
        facts,
        figure,
    )


def _thin(values: list[float]) -> list[float]:
    step = max(1, len(values) // 200)
    return [round(v, 5) for v in values[::step]]


def figure_of(facts: dict[str, Any]) -> Any:
    """Figure 3: training error and noiseless test error against the epoch."""
    panels = []
    for key, label in (("training", "training MSE"), ("curves", "noiseless test MSE")):
        curves = []
        for name, values in facts[key].items():
            step = facts["epochs"] / len(values)
            curves.append(Curve(name, [k * step for k in range(len(values))], values, "-"))
        panels.append(Panel("epoch", label, curves, scale="semilogy"))
    return draw(*panels)
