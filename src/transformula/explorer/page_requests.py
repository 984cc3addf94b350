"""What the page may ask for, with every size bounded before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from transformula.compiler.constructions import Choice

MAX_CURVE_POINTS, MAX_SURFACE_POINTS = 401, 101

Name = Annotated[str, Field(min_length=1, max_length=64)]
Point = Annotated[dict[Name, Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=1000)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(_Asked):
    """A formula (several, separated by semicolons) on a box."""

    formula: Annotated[str, Field(max_length=10_000)]
    box: Annotated[str, Field(max_length=4_000)]


class ConstructionsRequest(Problem):
    """What the table of all constructions needs."""

    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    dtype: Literal["float64", "float32"] = "float64"


class CompileRequest(ConstructionsRequest):
    """What `transformula.compile` needs."""

    construction: Choice = "auto"


class CompareRequest(Problem):
    """What the comparison needs."""

    dtype: Literal["float64", "float32"] = "float64"


class SliceRequest(_Asked):
    """A curve or a surface through a model."""

    output: Annotated[int, Field(ge=0, lt=1000)] = 0
    variables: Annotated[list[Name], Field(min_length=1, max_length=2)]
    at: Point = {}
    points: Annotated[int, Field(ge=2, le=MAX_CURVE_POINTS)] | None = None


class AttentionRequest(_Asked):
    """Attention at one point."""

    point: Point
    output: Annotated[int, Field(ge=0, lt=1000)] = 0
    query: Annotated[int, Field(ge=0, lt=100_000)] = 0


def first_complaint(errors: Sequence[Any]) -> dict[str, str]:
    """The first thing wrong with a request, as the page shows it: at a field, in a sentence."""
    error = errors[0] if errors else {}
    place = [str(part) for part in error.get("loc", ()) if part != "body"]
    field = place[0] if place and not place[0].isdigit() else ""
    kind, limits = str(error.get("type", "")), error.get("ctx", {})
    if kind == "json_invalid" or not field:
        return {"field": "", "message": "the request is not the JSON this page sends"}
    if kind == "string_too_long":
        return {"field": field, "message": f"too long: at most {limits.get('max_length')} characters"}
    if kind == "missing":
        return {"field": field, "message": "something is missing here"}
    if field == "eps":
        return {"field": field, "message": "a tolerance is a number above 0, such as 1e-6"}
    return {"field": field, "message": str(error.get("msg", "cannot be used")).lower()}
