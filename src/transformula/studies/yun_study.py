"""Yun's construction beside Fang's and Gumaan's: what each takes for one formula and one tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformula.api import compile
from transformula.compiler import policy
from transformula.compiler.attempts import BuildTask, Options
from transformula.compiler.certify import package
from transformula.compiler.constructions import YUN
from transformula.compiler.gallery.yun import yun_attempts
from transformula.compiler.prepare import Prepared
from transformula.errors import NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.folder.description import EVIDENCE_FILE, parse_json
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, log_slope, new_figure

FORMULA = "sin(3*x)*y"
BOX = "x=0..1, y=0..1"
#: Formulas whose two layouts, each with the layers of one paper, are built and proven.
LAYOUTS = (("sin(2*x)", "x=0..2", 0.15), ("x*y", BOX, 0.1), ("x*y*z", "x=0..1, y=0..1, z=0..1", 0.1))
FANG = ("x*y", FORMULA)
#: A tolerance for which the paper's counts are computed without building anything.
SMALL = 1e-6


def yun(run: StudyRun) -> Report:
    """One formula at several tolerances, by three theorems; and two layouts of the same weights."""
    tolerances = run.pick([0.1, 0.05, 0.025], [0.1, 0.05, 0.035, 0.025, 0.018])
    models = [compile(FORMULA, BOX, eps, "yun") for eps in tolerances]
    rows = [[eps, *_proven_mean(model)] for eps, model in zip(tolerances, models, strict=True)]
    others = [[eps, *_partition(eps)] for eps in tolerances]
    fang = [_fang(formula, tolerances[-1]) for formula in FANG]
    layouts = [_layouts(*case) for case in LAYOUTS]
    slope = log_slope([r[0] for r in rows], [r[2] for r in rows])
    small = _needed(SMALL, rows)
    return Report(
        run,
        "yun: quantisation, contextual mapping, value mapping",
        "Yun et al. (1912.10077) prove that Transformers approximate any continuous function in L^p, by cells that "
        "attention tells apart; Fang et al. (section 4) set their exact polynomials against it, Gumaan one layer of "
        "cells. What does each take for one formula and one tolerance?",
        f"{FORMULA} on {BOX}, float64. Parameters are all non-zero numbers; for Fang those that the paper counts. For "
        "Yun eps is a tolerance for the mean error over the box, for the others for the error at every point.",
        [
            StudyTable(
                "Yun: proven means",
                ["eps", "cells", "contexts", "layers", "parameters", "mean ≤", "outside seams ≤", "seams"],
                rows,
            ),
            StudyTable(
                "Yun: layers in the layout here and in the paper's, both built and proven",
                ["formula", "variables", "contexts", "layers", "paper's layout", "2 steps + grid values + 2 contexts"],
                [[case[0], *row[1:6]] for case, row in zip(LAYOUTS, layouts, strict=True)],
            ),
            StudyTable(
                "Gumaan, Theorem 1 (partition): proven at every point",
                ["eps", "layers", "tokens", "parameters", "error ≤"],
                others,
            ),
            StudyTable(
                f"Fang, Theorem 3.5 and Corollary 3.7, eps = {tolerances[-1]:g} at every point",
                ["formula", "blocks", "parameters", "approximation", "error ≤"],
                fang,
            ),
        ],
        _findings(rows, slope, small),
        {"rows": rows, "partition": others, "fang": fang, "layouts": layouts, "slope": slope, "needed": small},
        _figure(models[0], rows, others, fang[-1]),
    )


def _findings(rows: list[list[Any]], slope: float, small: float) -> list[str]:
    return [
        f"Contexts grow like eps^{slope:.2f} in two variables: the paper's δ^−n with δ in proportion to eps.",
        f"The layers stay at {rows[0][3]}: what grows is the width. In the paper's layout, one step, grid value or "
        "context at a time, the layers are those of the second table; both layouts are proven at the same tolerance.",
        "With positional encodings one selective shift for each token does what the paper has one for each grid value "
        "do: its number of attention layers, n/δ, can be n.",
        f"At eps = {SMALL:g} this formula would take about {small:.0e} contexts, hence as many layers in the paper's "
        f"layout; up to {policy.MAX_CONTEXTS} are built here.",
        "The claims differ. Fang's and Gumaan's bounds hold at every point; Yun's is of the mean over the box, and at "
        "points outside the seams the error is several times as large. No finer grid makes it hold on the seams.",
    ]


def _proven_mean(model: Model) -> list[Any]:
    mean = model.certificate.mean
    assert mean is not None, "it claims a mean"
    sizes = model.layers, model.parameter_count, model.certificate.bound
    return [_cells(model), _contexts(model), *sizes, mean.outside, mean.seams]


def _partition(eps: float) -> list[Any]:
    model = compile(FORMULA, BOX, eps, "partition")
    return [model.layers, model.memory_tokens, model.parameter_count, model.certificate.bound]


def _contexts(model: Model) -> int:
    """Number of cells of the box."""
    return 1 + sum(slot.startswith("before") for slot in model.weights.slots)


def _cells(model: Model) -> str:
    grid = parse_json(model.packed.evidence, EVIDENCE_FILE)["grid"]
    return " × ".join(str(len(cells)) for cells in grid.values())


def _fang(formula: str, eps: float) -> list[Any]:
    model = compile(formula, BOX, eps, "polynomial")
    return [formula, model.layers, model.parameter_count, model.certificate.approximation, model.certificate.bound]


def _layouts(formula: str, box: str, eps: float) -> list[Any]:
    """The same cells in the layout here and in the paper's, each with its proof."""
    target = Formula.of(formula, box)
    wide, narrow = (_first_proven(target, eps, one) for one in (False, True))
    contexts, variables = _contexts(wide), len(wide.weights.inputs)
    steps = sum(slot.startswith("below") for slot in wide.weights.slots)
    shifts = steps + 1 if variables > 1 else 0
    shown = [model.certificate.bound for model in (wide, narrow)]
    return [eps, variables, contexts, wide.layers, narrow.layers, 2 * steps + shifts + 2 * contexts, shown]


def _first_proven(target: Formula, eps: float, narrow: bool) -> Model:
    refusal: NotProvenError | None = None
    task = BuildTask(Prepared(target), Options(eps=eps))
    for attempt in yun_attempts(task, narrow):
        try:
            return package(YUN, attempt.build(), target, task.options)
        except NotProvenError as error:
            refusal = error
    assert refusal is not None, "there are attempts"
    raise refusal


def _needed(eps: float, rows: list[list[Any]]) -> float:
    """About how many contexts a tolerance takes, from the finest that was built: eps**-2 in two variables."""
    return float(rows[-1][2] * (rows[-1][0] / eps) ** 2)


def _figure(model: Model, rows: list[list[Any]], others: list[list[Any]], fang: list[Any]) -> Any:
    assert isinstance(model.formula, Formula)
    figure = new_figure(10.4, 4.0)
    left, right = figure.subplots(1, 2)
    x = np.linspace(0, 1, 4001)
    y = np.full_like(x, 0.8)
    left.plot(x, evaluate(model.formula.outputs[0], model.box.variables, [x, y]), color="0.6", label="formula")
    left.plot(x, model(np.column_stack([x, y])), linewidth=1, label="Transformer")
    left.set(xlabel="x, at y = 0.8", ylabel=FORMULA, title=f"mean error ≤ {rows[0][5]:.3g}, proven")
    left.legend(loc="lower center")
    eps = [row[0] for row in rows]
    curves = [
        Curve("Yun: contexts (mean error)", eps, [row[2] for row in rows]),
        Curve("Gumaan: tokens (every point)", eps, [row[2] for row in others], "s-"),
        Curve("eps^−2", eps, [rows[0][2] * (eps[0] / e) ** 2 for e in eps], ":", "0.6"),
    ]
    levels = {f"Fang: {fang[2]} parameters (every point)": fang[2]}
    Panel("eps", "how many", curves, FORMULA, levels=levels, ticks=eps).draw(right)
    right.set_ylim(top=40 * max(row[2] for row in others))
    return figure
