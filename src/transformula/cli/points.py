"""Points from text, checked against the box with exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import arb

from transformula.errors import BoxError, PointError
from transformula.formula.given_box import exact_number
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.folder.description import EVIDENCE_FILE, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Box, split_commas
from transformula.kernel.syntax.expression import Expr
from transformula.model import Model

#: Decides on which side of an interval's end a point lies.
_BITS = 512


def parse_point(text: str, box: Box, names: Mapping[str, str] | None = None) -> list[Expr]:
    """Read ``x=1/2, y=pi`` into one exact number for each variable of the box.

    ``names`` maps variables to columns, which may be named instead: ``"sq ft"=900``.
    """
    given: dict[str, Expr] = {}
    variable = {column: name for name, column in (names or {}).items()}
    for part in split_commas(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise PointError(f"cannot read {part!r} in the point: write name=value")
        if name not in box.variables:
            name = variable.get(name.strip("\"'"), name)
        if name not in box.variables:
            raise PointError(f"{name!r} is not a variable of this model: {', '.join(box.variables)}")
        if name in given:
            raise PointError(f"the point gives {name} twice")
        try:
            given[name] = exact_number(value, name)
        except BoxError as error:
            raise PointError(str(error)) from None
    if missing := [name for name in box.variables if name not in given]:
        raise PointError(f"the point has no value for {', '.join(missing)}")
    return [given[name] for name in box.variables]


def check_inside(value: Expr, box: Box, index: int, place: str = "") -> arb:
    """The value as a ball, if it lies in its interval; else a clear refusal."""
    ball = enclose(value)
    low, high = enclose(box.lower[index]), enclose(box.upper[index])
    if not ball.is_finite():
        raise PointError(f"{place}{box.variables[index]} = {value} is not a number")
    if ball < low or ball > high:
        raise PointError(
            f"{place}{box.variables[index]} = {_decimal(value)} is outside {box.lower[index]}..{box.upper[index]}, "
            "where nothing is proven"
        )
    return ball


def _decimal(value: Expr) -> str:
    """A point as people write it: a fraction with many digits, as a float has, in decimals."""
    text = str(value)
    return text if value.number is None or len(text) <= 12 else repr(float(value.number))


def evaluate_point(model: Model, text: str, exact: bool, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Evaluate one point, in floats or through the blocks on rationals."""
    point = parse_point(text, model.box, names)
    with precision(_BITS):
        balls = [check_inside(v, model.box, k) for k, v in enumerate(point)]
    if exact:
        values = model.exact(point)
        return {"values": [str(v) for v in values], "exact": True, "bound": None, "status": model.status}
    row = [float(b) for b in balls]
    result = np.atleast_1d(model([row])).ravel()
    known = not isinstance(model.formula, Samples) or bool((model.formula.x == row).all(axis=1).any())
    bound, status = model.pointwise
    return {
        "values": [float(v) for v in result],
        "exact": False,
        "bound": bound if known and _outside_seams(model, balls) else None,
        "status": status,
    }


def _outside_seams(model: Model, point: list[arb]) -> bool:
    """Whether a bound at every point is claimed of this one: a mean leaves seams out, which evidence.json places."""
    if model.certificate.mean is None:
        return True
    evidence = Evidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
    sides = zip(point, model.box.variables, strict=True)
    return all(any(edges[0] <= x <= edges[-1] for edges in evidence.grid(name)) for x, name in sides)
