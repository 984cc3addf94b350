"""The report's section about a fit: how good it is on rows it has not seen, and what it says about the columns.

Every number comes from fit.json, where `fit` has stored it: the report has no data of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from transformula.show import page_parts as html
from transformula.show.figure_style import PAGE, inline_svg, one_plot

_TITLES = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "accuracy": "accuracy", "log_loss": "log loss", "auc": "AUC"}
#: Height of a figure, in inches.
_HEIGHT = 2.6


def fit_section(notes: Mapping[str, Any]) -> str:
    """The section as markup, "" without notes; notes that cannot be drawn are left out with a sentence."""
    if "preparation" not in notes:
        return ""
    try:
        return html.section(f"The fit of {notes['target']}", *_parts(notes))
    except (KeyError, TypeError, ValueError, IndexError):
        return html.section("The fit", html.paragraph("fit.json cannot be drawn: it is not as fit writes it."))


def _parts(notes: Mapping[str, Any]) -> list[str]:
    report = notes.get("report", {})
    parts = [_formula(notes), _scores(notes, report)]
    if report.get("points"):
        parts.append(html.columns(_predicted(report), _residuals(report)))
    if report.get("calibration"):
        parts.append(html.figure(_plot(_calibration(report["calibration"]), "calibration"), _CALIBRATION))
    if report.get("confusion"):
        parts.append(_confusion(notes["classes"], report["confusion"]))
    if report.get("importance"):
        parts.append(_importance(report))
    effects = [_effect(one, notes["target"], notes.get("classes", [])) for one in report.get("effects", [])]
    if effects:
        parts.append(html.columns(*effects))
    if report.get("terms"):
        rows = [[f"<code>{escape(t)}</code>", f"{c:.6g}", f"{100 * s:.1f} %"] for t, c, s in report["terms"]]
        share = "log odds" if notes.get("classes") else "share of the target's deviation"
        parts.append(html.folded("Terms, by contribution", html.table(["term", "coefficient", share], rows, (1, 2))))
    lines = [[escape(c["name"]), escape(c["kind"]), escape(c.get("note", ""))] for c in notes["preparation"]]
    parts.append(html.folded("What became of the columns", html.table(["column", "kind", "note"], lines)))
    return parts


_CALIBRATION = (
    "Groups of held-out rows with a similar probability: the share of the class in each, which is the probability "
    "itself where the dots lie on the line."
)


def formula_titles(target: str, classes: Sequence[str]) -> list[str]:
    """The name of each polynomial of a fit."""
    if len(classes) == 2:
        return [f"log odds of {classes[1]}"]
    return [f"score of {label}" for label in classes] or [target]


def _formula(notes: Mapping[str, Any]) -> str:
    pairs = zip(formula_titles(str(notes["target"]), notes.get("classes", [])), notes["formula"], strict=True)
    rows = [(title, f"<code>{escape(html.cut(text, 4000))}</code>") for title, text in pairs]
    for key in ("r2_change_by_rounding", "log_loss_change_by_rounding"):
        if notes.get(key) is not None:
            rows.append(
                ("change by rounding the coefficients", f"{notes[key]:.1g} ({_TITLES[key.split('_change')[0]]})")
            )
    return html.facts(rows)


def _scores(notes: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    found = {**(notes.get("held_out") or {}), **report.get("beside", {})}
    if not found:
        return html.paragraph("No rows were held out (--test 0): there is no score on unseen rows.")
    keys = [key for key in _TITLES if key in next(iter(found.values()))]
    rows = [
        [escape(name), *("–" if scores.get(key) is None else f"{scores[key]:.4g}" for key in keys)]
        for name, scores in found.items()
    ]
    shown = html.table(["on held-out rows", *(_TITLES[key] for key in keys)], rows, range(1, len(keys) + 1))
    split = f"{notes['held_out_rows']:,} held-out rows, {notes['rows']:,} rows to fit; the same split for every model."
    return shown + html.paragraph(split)


def _plot(draw: Callable[[Any], None], title: str) -> str:
    with one_plot(PAGE, _HEIGHT, 4.0) as (figure, axes):
        draw(axes)
    return inline_svg(figure, title)


def _predicted(report: Mapping[str, Any]) -> str:
    actual, predicted = np.array(report["points"], dtype=float).T

    def draw(axes: Any) -> None:
        ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
        axes.plot(ends, ends, color=PAGE.soft, linewidth=1)
        axes.plot(actual, predicted, ".", color=PAGE.model, markersize=3)
        axes.set_xlabel("actual")
        axes.set_ylabel("predicted")

    return html.figure(_plot(draw, "predicted against actual"), f"{len(actual)} {_whose(report)}.")


def _residuals(report: Mapping[str, Any]) -> str:
    actual, predicted = np.array(report["points"], dtype=float).T

    def draw(axes: Any) -> None:
        axes.axhline(0, color=PAGE.soft, linewidth=1)
        axes.plot(predicted, actual - predicted, ".", color=PAGE.model, markersize=3)
        axes.set_xlabel("predicted")
        axes.set_ylabel("actual − predicted")

    return html.figure(
        _plot(draw, "residuals"), "Residuals of the same rows: a pattern here is something the fit misses."
    )


def _whose(report: Mapping[str, Any]) -> str:
    return "held-out rows" if report.get("points_are_held_out") else "rows of the fit (none were held out)"


def _calibration(pairs: Any) -> Callable[[Any], None]:
    said, seen = np.array(pairs, dtype=float).T

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=PAGE.soft, linewidth=1)
        axes.plot(said, seen, "o-", color=PAGE.model, markersize=4)
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("share of rows")

    return draw


def _confusion(classes: list[str], counts: list[list[int]]) -> str:
    rows = [[escape(label), *(f"{int(n):,}" for n in row)] for label, row in zip(classes, counts, strict=True)]
    return html.table(["actual / predicted", *classes], rows, range(1, len(classes) + 1))


def _importance(report: Mapping[str, Any]) -> str:
    shapley = report.get("shapley") or [None] * len(report["names"])
    listed = sorted(zip(report["names"], report["importance"], shapley, strict=True), key=lambda one: -one[1])
    rows = [[escape(n), f"{i:.3g}", "–" if s is None else f"{s:.4g}"] for n, i, s in listed]
    note = (
        "Importance: by how much the loss on these rows grows when the column is permuted, as a share of the loss "
        "without any column. Shapley: the mean size of the column's share in a prediction, exact for the polynomial, "
        "with columns taken as independent."
    )
    return html.table(["column", "importance", "mean |Shapley value|"], rows, (1, 2)) + html.paragraph(note)


def _effect(one: Mapping[str, Any], target: str, classes: list[str]) -> str:
    means = [float(v) for v in one["mean"]]

    def draw(axes: Any) -> None:
        if one["kind"] == "category":
            axes.barh(range(len(means)), means, color=PAGE.model)
            axes.set_yticks(range(len(means)), [html.cut(str(level), 16) for level in one["at"]])
        else:
            axes.plot([float(v) for v in one["at"]], means, color=PAGE.model)
        (axes.set_ylabel if one["kind"] == "category" else axes.set_xlabel)(html.cut(one["column"], 40))

    what = f"probability of {classes[-1]}" if classes else f"prediction of {target}"
    return html.figure(_plot(draw, f"effect of {one['column']}"), f"Mean {what} for each {one['column']}.")
