"""Data of the charts as plain lists: slices, cells, attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from transformula.compiler.constructions import CIRCUIT_FAMILY, RIDGE_FAMILY, TABLE_FAMILY
from transformula.compiler.table_reading import TableHead
from transformula.formula.evaluation import evaluate_accurately
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.show.circuit_view import circuit_items, linear_text
from transformula.show.page_parts import cut as cut_text
from transformula.show.slices import HeadAttention, Slice, attention_at, point_in_box, slice_through

Segment = tuple[float, float, float, float]

#: Largest numbers of borders and centres of cells, of tokens of a head, and of heads.
MAX_LINES = 400
MAX_CENTRES = 2_500
MAX_BARS = 64
MAX_HEADS = 16
#: Largest number of bars of a sum; the smallest parts share the last one.
MAX_ADDENDS = 14
#: Share of the largest part below which a part of a sum has no bar of its own.
_FAINT = 1e-4
#: Tokens × grid points beyond which a grid becomes coarser, and the fewest points along an axis.
MAX_COST = 4e8
_MIN_POINTS = 11


def numbers(array: Any) -> Any:
    """Nested lists of JSON numbers with eight digits; null for numbers that are not finite."""
    if isinstance(array, np.ndarray) and array.ndim > 1:
        return [numbers(row) for row in array]
    return [float(f"{v:.8g}") if math.isfinite(v) else None for v in np.asarray(array, dtype=float).tolist()]


def slice_payload(
    model: Model, output: int, variables: Sequence[str], at: Mapping[str, float], points: int
) -> dict[str, Any]:
    """Formula, model and error on a grid, with the model's cells where it has some."""
    affordable = (MAX_COST / max(model.tokens, 1)) ** (1 / len(variables))
    points = max(_MIN_POINTS, min(points, int(affordable)))
    cut = slice_through(model, output, variables, at, points)
    worst = cut.worst
    return {
        "output": output,
        "variables": list(cut.variables),
        "axes": [numbers(axis) for axis in cut.axes],
        "held": cut.held,
        "formula": numbers(cut.formula),
        "model": numbers(cut.model),
        "error": numbers(cut.error),
        "worst": worst if math.isfinite(worst) else None,
        "accurate": cut.accurate,
        "bound": model.pointwise[0],
        "seams": model.certificate.mean is not None,
        "cells": cells(model, cut),
    }


def cells(model: Model, cut: Slice) -> dict[str, Any] | None:
    """Borders between neighbouring tokens of a table, as lines across the slice; None without tables.

    A head's scores along one axis are a·u + b with u a linear form of the inputs; the next token takes over
    at u = −Δb/Δa. For the partition these lines bound the cells, for a lookup they lie between its centres.
    """
    if model.family is not TABLE_FAMILY or not isinstance(model.formula, Formula):
        return None
    ends = [(float(axis[0]), float(axis[-1])) for axis in cut.axes]
    lines: list[Segment] = []
    total = 0
    heads: tuple[TableHead, ...] = model.reading
    for head in heads:
        for axis, turns in enumerate(_turns(head)):
            slope, rest = _form(head, axis, model, cut)
            found = [s for t in turns if (s := _segment(slope, t - rest, ends)) is not None]
            total += len(found)
            lines += found[: MAX_LINES + 1]
    shown = lines if total <= MAX_LINES else []
    centres = _centres(heads[0], model, cut, ends) if len(heads) == 1 else None
    return {"lines": [numbers(s) for s in shown], "total": total, "centres": centres}


def _turns(head: TableHead) -> list[list[float]]:
    if head.grid is None:
        return []
    turns = []
    for slopes, offsets in zip(head.grid.slopes, head.grid.offsets, strict=True):
        order = np.argsort(slopes, kind="stable")
        rise, fall = np.diff(slopes[order]), -np.diff(offsets[order])
        turns.append((fall[rise > 0] / rise[rise > 0]).tolist())
    return turns


def _form(head: TableHead, axis: int, model: Model, cut: Slice) -> tuple[list[float], float]:
    """The axis' linear form on the slice: coefficients of the drawn variables, and the rest."""
    names = model.weights.inputs
    form = {names[k]: int(v.p) / int(v.q) for k, v in head.forms[axis].items()}
    rest = sum(c * cut.held[name] for name, c in form.items() if name in cut.held)
    return [form.get(name, 0.0) for name in cut.variables], rest


def _segment(slope: list[float], level: float, ends: list[tuple[float, float]]) -> Segment | None:
    """The part of slope·(x, y) = level inside the rectangle; for a curve a point, written twice."""
    if len(slope) == 1:
        if slope[0] == 0:
            return None
        x = level / slope[0]
        return (x, 0.0, x, 0.0) if ends[0][0] < x < ends[0][1] else None
    (a, b), ((left, right), (low, high)) = slope, ends
    points = []
    if b != 0:
        points += [(x, (level - a * x) / b) for x in (left, right)]
    if a != 0:
        points += [((level - b * y) / a, y) for y in (low, high)]
    inside = sorted({p for p in points if left <= p[0] <= right and low <= p[1] <= high})
    if len(inside) < 2 or inside[0] == inside[-1]:
        return None
    return (*inside[0], *inside[-1])


def _centres(head: TableHead, model: Model, cut: Slice, ends: list[tuple[float, float]]) -> list[list[float]] | None:
    """The middles of a partition's cells with their sampled values, where the slice is the whole box."""
    forms = [_form(head, axis, model, cut) for axis in range(head.axes)]
    whole = not cut.held and model.made_by.sharp and head.grid is not None
    plain = [s == [float(j == k) for j in range(len(ends))] for k, (s, _) in enumerate(forms)]
    if not (whole and len(plain) == len(ends) and all(plain)) or head.tokens > MAX_CENTRES:
        return None
    middles, order = [], []
    assert head.grid is not None
    for slopes, turns, (low, high) in zip(head.grid.slopes, _turns(head), ends, strict=True):
        edges = np.concatenate([[low], turns, [high]])
        middles.append(((edges[:-1] + edges[1:]) / 2).tolist())
        order.append(np.argsort(slopes, kind="stable"))
    values = head.grid.arranged(head.values[:, min(cut.output, len(head.slots) - 1)])[np.ix_(*order)].ravel()
    places = list(product(*middles))
    answers = np.asarray(model(np.array(places))).reshape(len(places), -1)[:, cut.output]
    if not np.allclose(answers, values, atol=model.certificate.bound):  # a linear part goes around the table
        return None
    return [[*place, value] for place, value in zip(places, values.tolist(), strict=True)]


def _addends(
    model: Model, row: FloatArray, heads: Sequence[HeadAttention], answer: float, output: int
) -> list[dict[str, Any]]:
    """Parts that add up to the answer: of tokens, of powers of directions or of wires; none for the gallery."""
    parts: list[tuple[str, str, float]] = []
    if model.family is TABLE_FAMILY:
        for head in heads:
            where = f"head {head.head}, " if len(heads) > 1 else ""
            numbered = enumerate(zip(head.weights.tolist(), head.values.tolist(), strict=True))
            parts += [(f"{where}token {k}", f"{w:.4g} × {v:.6g}", w * v) for k, (w, v) in numbered]
    elif model.family is RIDGE_FAMILY:
        ridge, names = model.reading, model.weights.inputs
        for token, powers in ridge.by_output[output].items():
            form = ridge.directions[token]
            t = sum(int(c.p) / int(c.q) * row[0, k] for k, c in form.items())
            terms = {s: int(c.p) / int(c.q) for s, c in sorted(powers.items())}
            note = " + ".join(f"{c:.4g}·t^{s}" for s, c in terms.items())
            parts.append(
                (f"t = {cut_text(linear_text(form, names), 24)}", f"t = {t:.6g}: {note}", _power_sum(terms, t))
            )
    elif model.family is CIRCUIT_FAMILY:
        parts = _readout_parts(model, row, output)
    else:
        return []
    rest = answer - sum(value for *_, value in parts)
    if abs(rest) > 1e-9 * max(abs(value) for value in [answer, *(value for *_, value in parts)]):
        parts.append(("straight line" if model.family is TABLE_FAMILY else "constant", "", rest))
    order = sorted(range(len(parts)), key=lambda k: -abs(parts[k][2]))
    faint = _FAINT * max((abs(value) for *_, value in parts), default=0.0)
    kept = [k for k in order[:MAX_ADDENDS] if abs(parts[k][2]) > faint] or order[:1]
    kept = sorted(kept if len(kept) + 1 < len(parts) else order)
    left = [parts[k][2] for k in order if k not in kept]
    shown = [parts[k] for k in kept] + ([(f"{len(left)} others", "", sum(left))] if left else [])
    finite = all(math.isfinite(value) for *_, value in shown)
    return [{"label": label, "note": note, "value": value} for label, note, value in shown] if finite else []


def _power_sum(terms: Mapping[int, float], t: float) -> float:
    return sum(c * t**s for s, c in terms.items())


def _readout_parts(model: Model, row: FloatArray, output: int) -> list[tuple[str, str, float]]:
    """The readout of a circuit: coefficient times what each wire holds after the last block."""
    weights, stream = model.weights, model.trace(row).residuals[-1][0]
    meanings = {item.name: item.meaning for item in circuit_items(model)}
    parts = []
    for out, column, c in zip(weights.readout.rows, weights.readout.cols, weights.readout.values, strict=True):
        if out == output:
            token, slot = divmod(int(column), weights.width)
            name = weights.slots[slot].removeprefix("x.")
            held = float(stream[token, slot])
            meaning = cut_text(meanings.get(name, name), 60)
            parts.append((name if name != "one" else "constant", f"{c:.4g} × {held:.6g}, {meaning}", float(c) * held))
    return parts


def attention_payload(model: Model, point: Mapping[str, float], output: int, query: int) -> dict[str, Any]:
    """Every head's largest weights at a point, in the order of the tokens, and the model's output."""
    place = point_in_box(model, point)
    row = np.array([[place[name] for name in model.box.variables]])
    answer = float(np.asarray(model(row)).reshape(1, -1)[0, output])
    assert isinstance(model.formula, Formula)
    exact = evaluate_accurately(
        model.formula.outputs[output], model.box.variables, [row[:, k] for k in range(row.shape[1])]
    )[0]
    heads = attention_at(model, place, output, query)
    shown = []
    for head in heads[:MAX_HEADS]:
        largest = np.sort(np.argsort(-np.abs(head.weights), kind="stable")[:MAX_BARS])
        shown.append(
            {
                "block": head.block,
                "head": head.head,
                "name": head.name,
                "query": head.query,
                "writes": head.writes,
                "kind": head.kind,
                "tokens": [head.tokens[k] for k in largest],
                "places": largest.tolist(),
                "weights": numbers(head.weights[largest]),
                "values": numbers(head.values[largest]),
                "total": len(head.weights),
                "sum": float(head.contributions.sum()),
            }
        )
    return {
        "point": place,
        "sum": {"kind": model.family.name, "terms": _addends(model, row, heads, answer, output)},
        "model": answer if math.isfinite(answer) else None,
        "formula": float(exact) if math.isfinite(exact) else None,
        "bound": model.pointwise[0],
        "seams": model.certificate.mean is not None,
        "heads": shown,
        "total_heads": len(heads),
    }
