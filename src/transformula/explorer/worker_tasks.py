"""Tasks of a worker process: read, compile, slice, attend, export, compare. Nothing here knows of HTTP."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from transformula.api import compile
from transformula.budget import listening
from transformula.compiler.comparison import TRIED, entries
from transformula.compiler.constructions import CIRCUIT_FAMILY, LOOKUP, PARTITION, Construction
from transformula.coq.coq_files import theorem_archive
from transformula.errors import (
    BoxError,
    FormulaError,
    InputError,
    NotProvenError,
    Option,
    TransformulaError,
    advice_of,
    closest_bound,
    in_words_of,
)
from transformula.explorer.page_requests import MAX_CURVE_POINTS, MAX_SURFACE_POINTS
from transformula.explorer.payloads import attention_payload, slice_payload
from transformula.explorer.worker import KEPT_MODELS, MEMORY_EXIT, Frame
from transformula.formula.evaluation import Floats, evaluate, peak
from transformula.formula.given_box import box_of
from transformula.formula.notations import given_formula
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.parsing import parse
from transformula.model import Model
from transformula.show.architecture import circuit_element
from transformula.show.describe import summary
from transformula.show.typeset import typeset_wrapping

#: Tolerances relative to the formula's largest value.
LOOKUP_STEPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
PARTITION_STEPS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
TRAINED = (4, 8, 16, 32, 64)
MAX_PARTITION_TOKENS = 20_000
#: Rows, epochs and test points of a training.
TRAINING_ROWS = 2_000
EPOCHS = 80
MEASURED_POINTS = 20_000
#: Share of the time limit that is planned, so that the last step may take longer than expected.
_SHARE = 0.8
#: Expected ratio of the times of two steps of a series.
_GROWTH = 3.0


class _Series:
    """One curve: its remaining steps, and the time and sizes of the finished ones."""

    def __init__(self, construction: Construction | None, steps: tuple[float, ...]) -> None:
        self.construction, self.steps = construction, list(steps)
        self.name = "trained" if construction is None else construction.name
        self.seconds = 0.0
        self.tokens: list[int] = []

    def stop(self) -> None:
        self.steps.clear()


def compare(formula: Formula, dtype: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Steps (about to begin), points (tokens, error, proven or not) and notes (why a curve ends)."""
    start = time.monotonic()
    ends = start + _SHARE * seconds
    scale = min((p for e in formula.outputs if (p := peak(e, formula.box)) > 0), default=1.0)
    series = [_Series(LOOKUP, LOOKUP_STEPS), _Series(PARTITION, PARTITION_STEPS), _Series(None, TRAINED)]
    total = done = sum(len(s.steps) for s in series)
    while any(s.steps for s in series):
        for one in series:
            if not one.steps:
                continue
            if time.monotonic() + _GROWTH * one.seconds > ends:
                yield _note(one, "the next size would take longer than the time limit")
                one.stop()
                continue
            step = one.steps.pop(0)
            done = total - sum(len(s.steps) for s in series) - 1
            yield {"event": "step", "series": one.name, "done": done, "left": total - done}
            begin = time.monotonic()
            try:
                if one.construction is None:
                    point = _trained(formula, int(step))
                else:
                    point = _compiled(formula, one.construction, step * scale, dtype)
            except TransformulaError as error:
                yield _note(one, str(error))
                one.stop()
                continue
            one.seconds = time.monotonic() - begin
            one.tokens.append(point["tokens"])
            yield {"event": "point", "series": one.name, "seconds": round(one.seconds, 3), **point}
            if one.construction is PARTITION and _next_tokens(one, formula) > MAX_PARTITION_TOKENS:
                if one.steps:
                    yield _note(one, f"the next size would need more than {MAX_PARTITION_TOKENS} tokens")
                one.stop()


def _note(series: _Series, message: str) -> dict[str, Any]:
    return {"event": "note", "series": series.name, "message": message}


def _next_tokens(series: _Series, formula: Formula) -> float:
    """Expected tokens of the next step: a power of the tolerance, extrapolated from two sizes or assumed after one."""
    if len(series.tokens) < 2:
        return series.tokens[-1] * 3.3 ** min(formula.box.dimension, 4)
    return series.tokens[-1] ** 2 / max(series.tokens[-2], 1)


def _compiled(formula: Formula, construction: Construction, eps: float, dtype: str) -> dict[str, Any]:
    model = compile(formula.texts, formula.box, eps, construction.name, dtype)
    return {"tokens": model.memory_tokens, "error": model.certificate.bound, "proven": True}


def _trained(formula: Formula, tokens: int) -> dict[str, Any]:
    from transformula.learn import OneLayerTransformerRegressor
    from transformula.learn.training import AS_IN_PAPERS

    rng = np.random.default_rng(0)
    X, y = _sampled(formula, rng, TRAINING_ROWS)
    regressor = OneLayerTransformerRegressor(memory_tokens=tokens, epochs=EPOCHS, random_state=0, **AS_IN_PAPERS).fit(
        X, y
    )
    places, truth = _sampled(formula, rng, MEASURED_POINTS)
    error = float(np.abs(regressor.predict(places).reshape(truth.shape) - truth).max())
    return {"tokens": tokens, "error": error, "proven": False, "points": len(places)}


def _sampled(formula: Formula, rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Points of the box, its corners and faces among them, with the formula's values there."""
    low, high = np.array(formula.box.floats()).T
    t = rng.random((count, len(low)))
    t = np.where(rng.random(t.shape) < 0.1, np.round(t), t)
    X = low + (high - low) * t
    y = np.stack([evaluate(e, formula.box.variables, list(X.T)) for e in formula.outputs], axis=1)
    defined = np.isfinite(y).all(axis=1)
    if defined.mean() < 0.5:
        raise InputError("the formula has no value at most points of the box")
    return X[defined], y[defined]


#: The page's names of parameters.
_FIELDS = {"dtype": "Floats", "time_limit": "Seconds", "construction": "Construction"}
Send = Callable[[Frame], None]

#: Seconds between two reports of progress.
_PROGRESS_SECONDS = 0.1
#: Largest drawing of a circuit that is sent, in characters.
_MAX_SVG = 300_000


class Refused(Exception):
    """A refusal already in the page's words."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["message"])
        self.problem = problem


def answer(task: Frame, send: Send) -> None:
    """Do one task; the last frame sent is done or refused."""
    try:
        _TASKS[task.body["task"]](task, send)
    except Refused as error:
        send(Frame({"event": "refused", "problem": error.problem}))
    except TransformulaError as error:
        send(Frame({"event": "refused", "problem": refusal(error)}))
    except MemoryError:
        os._exit(MEMORY_EXIT)  # the server knows what to say, and starts a fresh worker
    except Exception:
        traceback.print_exc(file=sys.stderr)
        message = "internal error; this is a bug in transformula, not a mistake in your formula"
        send(Frame({"event": "refused", "problem": {"field": "", "message": message, "kind": "fault"}}))


def refusal(error: TransformulaError, offset: int | None = 0) -> dict[str, Any]:
    """The error as the page shows it; ``offset`` is the position of its formula in the field."""
    message = in_words_of(str(error), "ε = {}", lambda name, value: f"{_FIELDS.get(name, name)} {value}")
    found: dict[str, Any] = {"field": _field(error), "message": message, "kind": "input", "advice": advice_of(error)}
    if isinstance(error, FormulaError) and error.position is not None and offset is not None:
        found["position"] = offset + error.position
    if isinstance(error, NotProvenError):
        close = closest_bound(error)
        found |= {
            "kind": "not proven",
            "best_bound": error.best_bound,
            "place": error.place,
            "closest": close if math.isfinite(close) else None,
        }
    return found


def _field(error: TransformulaError) -> str:
    if isinstance(error, FormulaError):
        return "formula"
    if isinstance(error, BoxError):
        return "box"
    if isinstance(error, NotProvenError):
        return ""
    return "eps" if error.reason == Option("eps") else "construction"


def read_problem(formula: str, box: str) -> Formula:
    """Read both fields, so that a refusal names its place in its field."""
    try:
        return given_formula(formula, box)
    except FormulaError as error:
        raise Refused(refusal(error, _start(formula, box, error))) from None


def _start(formula: str, box: str, error: FormulaError) -> int | None:
    """The start of the formula with the error, as an index of the field; None if the error is of something else."""
    offset = 0
    for piece in formula.split(";"):
        try:
            parse(piece.strip(), box_of(box).variables, jumps=True)
        except FormulaError as found:
            start = offset + len(piece) - len(piece.lstrip())
            return start if piece.strip() and found.position == error.position else None
        offset += len(piece) + 1
    return None


def check(task: Frame, send: Send) -> None:
    """Read a formula and a box, and typeset them."""
    formula = read_problem(task.body["formula"], task.body["box"])
    send(
        Frame(
            {
                "event": "done",
                "problem": _outline(formula),
                "mathml": list(map(typeset_wrapping, formula.outputs)),
            }
        )
    )


def _outline(formula: Formula) -> dict[str, Any]:
    return {
        "outputs": list(formula.texts),
        "variables": list(formula.box.variables),
        "ranges": [list(ends) for ends in formula.box.floats()],
    }


def compile_task(task: Frame, send: Send) -> None:
    """Compile; the model's files travel as blobs."""
    body = task.body
    start = time.perf_counter()
    formula = read_problem(body["formula"], body["box"])
    with listening(_reporter(send)):
        options = {"time_limit": body["seconds"]}
        model = compile(formula.typed, formula.box, body["eps"], body["construction"], body["dtype"], **options)
    texts = (model.packed.description, model.packed.evidence, model.certificate.to_json())
    blobs = (model.packed.arrays, *(text.encode() for text in texts))
    size = sum(map(len, blobs))
    if size > body["model_bytes"]:
        message = (
            f"proven, but its {model.tokens} tokens take {size / 1e6:.0f} MB, more than this page can keep: use "
            "transformula compile, or a larger ε"
        )
        raise Refused({"field": "eps", "message": message, "kind": "input"})
    facts = summary(model) | _outline(formula) | {"seconds": round(time.perf_counter() - start, 3)}
    facts |= {"data_tokens": len(model.weights.data_tokens), "size": size}
    if model.family is CIRCUIT_FAMILY:
        drawing = circuit_element(model)
        facts["circuit"] = drawing if len(drawing) <= _MAX_SVG else None
    send(Frame({"event": "done", "facts": facts}, blobs))


def _reporter(send: Send) -> Callable[[str, int, int | None], None]:
    last = 0.0

    def report(stage: str, done: int, left: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_SECONDS:
            last = now
            send(Frame({"event": "progress", "stage": stage, "done": done, "left": left}))

    return report


_models: OrderedDict[str, Model] = OrderedDict()


def _model(task: Frame) -> Model:
    """The model of a task: remembered from before, or made from its files."""
    identifier = task.body["model"]
    if task.blobs:
        description, evidence, claim = (blob.decode() for blob in task.blobs[1:])
        _models[identifier] = Model.from_packed(Packed(task.blobs[0], description, evidence), claim)
        while len(_models) > KEPT_MODELS:
            _models.popitem(last=False)
    _models.move_to_end(identifier)
    return _models[identifier]


def slice_task(task: Frame, send: Send) -> None:
    """A curve or a surface, as JSON bytes the server passes on unread."""
    body = task.body
    most = MAX_CURVE_POINTS if len(body["variables"]) == 1 else MAX_SURFACE_POINTS
    default = MAX_CURVE_POINTS if len(body["variables"]) == 1 else 61
    points = min(body["points"] or default, most)
    _send_json(slice_payload(_model(task), body["output"], body["variables"], body["at"], points), send)


def attention_task(task: Frame, send: Send) -> None:
    """Attention at a point, as JSON bytes."""
    body = task.body
    _send_json(attention_payload(_model(task), body["point"], body["output"], body["query"]), send)


def _send_json(payload: dict[str, Any], send: Send) -> None:
    send(Frame({"event": "done"}, (json.dumps(payload, allow_nan=False).encode(),)))


def compare_task(task: Frame, send: Send) -> None:
    """Lookup, partition and training at several sizes; every result is sent as it comes."""
    formula = read_problem(task.body["formula"], task.body["box"])
    for event in compare(formula, task.body["dtype"], task.body["seconds"]):
        send(Frame(event))
    send(Frame({"event": "done"}))


def constructions_task(task: Frame, send: Send) -> None:
    """Every construction for the formula; each is sent as soon as it is done."""
    body = task.body
    formula = read_problem(body["formula"], body["box"])
    share = body["seconds"] / (len(TRIED) + 1)
    for entry, _ in entries(formula.texts, formula.box, body["eps"], dtype=body["dtype"], time_limit=share):
        send(Frame({"event": "entry", **asdict(entry)}))
    send(Frame({"event": "done"}))


def onnx_task(task: Frame, send: Send) -> None:
    """The model as an ONNX file."""
    model: Any = _model(task)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model.to_onnx(path)
        send(Frame({"event": "done"}, (path.read_bytes(),)))


def theorem_task(task: Frame, send: Send) -> None:
    """The model's theorem for Coq, zipped, or why none can be written."""
    with tempfile.TemporaryDirectory() as folder:
        content = theorem_archive(_model(task).save(Path(folder) / "model"))
    send(Frame({"event": "done"}, (content,)))


_TASKS: dict[str, Callable[[Frame, Send], None]] = {
    "check": check,
    "compile": compile_task,
    "slice": slice_task,
    "attention": attention_task,
    "compare": compare_task,
    "constructions": constructions_task,
    "onnx": onnx_task,
    "theorem": theorem_task,
}
