"""Requests of the page, with every size bounded before any work is done, and the limits of the server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from transformula.compiler.constructions import Choice

#: Largest numbers of points along an axis.
MAX_CURVE_POINTS = 401
MAX_SURFACE_POINTS = 101

Name = Annotated[str, Field(min_length=1, max_length=64)]
Point = Annotated[dict[Name, Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=1000)]


@dataclass(frozen=True)
class Limits:
    """Bounds on time, memory, queues and sizes; larger requests are refused with a 4xx answer.

    Attributes
    ----------
    compile_workers, view_workers : processes that compile and compare, and processes that draw; separate, so that
        moving a slider never waits for a compilation.
    waiting : number of requests that may wait for a process of each kind.
    compile_seconds, view_seconds : wall-clock time of one request of each kind.
    memory_bytes : memory that a process may allocate (Linux: RLIMIT_DATA).
    model_bytes, shelf_models, shelf_bytes : the largest model kept, the number of models kept, and their total size.
    body_bytes, body_seconds : size of a request's body, and time to send it.
    """

    compile_workers: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    view_workers: int = 2
    waiting: int = 16
    compile_seconds: float = 60.0
    view_seconds: float = 15.0
    memory_bytes: int = 2 << 30
    model_bytes: int = 48 << 20
    shelf_models: int = 64
    shelf_bytes: int = 256 << 20
    body_bytes: int = 64 << 10
    body_seconds: float = 10.0


class _PageRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FormulaRequest(_PageRequest):
    """A formula (several, separated by semicolons) on a box."""

    formula: Annotated[str, Field(max_length=10_000)]
    box: Annotated[str, Field(max_length=4_000)]


class ConstructionsRequest(FormulaRequest):
    """A table of all constructions."""

    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    dtype: Literal["float64", "float32"] = "float64"


class CompileRequest(ConstructionsRequest):
    """A compilation."""

    construction: Choice = "auto"
    seconds: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None


class CompareRequest(FormulaRequest):
    """A comparison of lookup, partition and training."""

    dtype: Literal["float64", "float32"] = "float64"


class SliceRequest(_PageRequest):
    """A curve or a surface through a model."""

    output: Annotated[int, Field(ge=0, lt=1000)] = 0
    variables: Annotated[list[Name], Field(min_length=1, max_length=2)]
    at: Point = {}
    points: Annotated[int, Field(ge=2, le=MAX_CURVE_POINTS)] | None = None


class AttentionRequest(_PageRequest):
    """Attention at one point."""

    point: Point
    output: Annotated[int, Field(ge=0, lt=1000)] = 0
    query: Annotated[int, Field(ge=0, lt=100_000)] = 0


def first_complaint(errors: Sequence[Any]) -> dict[str, str]:
    """The first error of a request, as the page shows it: a field and a sentence."""
    error = errors[0] if errors else {}
    place = [str(part) for part in error.get("loc", ()) if part != "body"]
    where = place[0] if place and not place[0].isdigit() else ""
    kind, limits = str(error.get("type", "")), error.get("ctx", {})
    if kind == "json_invalid" or not where:
        return {"field": "", "message": "the request is not the JSON this page sends"}
    if kind == "string_too_long":
        return {"field": where, "message": f"too long: at most {limits.get('max_length')} characters"}
    if kind == "missing":
        return {"field": where, "message": "something is missing here"}
    if where == "seconds":
        return {"field": where, "message": "a time limit is a number of seconds above 0, at most 3600"}
    if where == "eps":
        return {"field": where, "message": "a tolerance is a number above 0, such as 1e-6"}
    return {"field": where, "message": str(error.get("msg", "cannot be used")).lower()}
