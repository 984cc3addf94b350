"""Requests of a batch, read and checked before any work is done, and its jobs, as a worker does them.

Files travel as bytes, so that a cluster needs no shared disk.
"""

from __future__ import annotations

import math
import re
import time
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.api import compile
from transformula.errors import InputError, NotProvenError, TransformulaError
from transformula.export.onnx_files import onnx_bytes
from transformula.formula.evaluation import evaluate, evaluate_accurately
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr
from transformula.model import Model
from transformula.model_folder import ONNX_FILE, REPORT_FILE
from transformula.proven import norm_of, require_proof, verify_files
from transformula.show.report_page import report_page

#: Verbs of a batch. All but the first use existing folders, and compile only missing ones.
VERBS = ("compile", "verify", "export", "report")
#: Names of columns; ``on`` is a synonym of ``box``.
COLUMNS = ("name", "formula", "box", "on", "eps", "rel", "dtype", "construction")
_NEEDED = ("name", "formula", "box")
_NAME = re.compile(r"\w(?:[\w .,+=()-]{0,98}[\w)+-])?")
#: Names that Windows reserves for devices.
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", re.IGNORECASE)
#: Files of the batch itself, beside the model folders.
OWN_FILES = ("batch.jsonl", "summary.csv", "summary.html", "summary.json")


@dataclass(frozen=True)
class Request:
    """One formula to compile, with its options."""

    name: str
    formula: str
    box: str
    eps: float | None = None
    rel: float | None = None
    dtype: str = "float64"
    construction: str = "auto"

    @property
    def asked(self) -> dict[str, Any]:
        """All fields but the name: they determine the model."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


def read_requests(rows: Iterable[Mapping[str, Any]], places: Iterable[str] | None = None) -> list[Request]:
    """Requests from rows; ``places`` are the rows' positions in their source, for messages.

    Examples
    --------
    >>> read_requests([{"name": "wave", "formula": "sin(x)", "box": "x=0..1", "eps": "1e-3"}])[0].eps
    0.001
    >>> read_requests([{"name": "../x", "formula": "x", "box": "x=0..1"}])
    Traceback (most recent call last):
    transformula.kernel.exceptions.InputError: row 1: the name '../x' cannot be a folder name: ...
    """
    requests: list[Request] = []
    seen: dict[str, str] = {}
    listed = list(rows)
    where = [f"row {k + 1}" for k in range(len(listed))] if places is None else list(places)
    for row, place in zip(listed, where, strict=True):
        request = _request(row, place)
        same = unicodedata.normalize("NFKC", request.name).casefold()
        if same in seen:
            clash = (
                "is given twice"
                if seen[same] == request.name
                else f"is the same as {seen[same]!r} on some file systems"
            )
            raise InputError(f"{place}: the name {request.name!r} {clash}: give each formula a name of its own")
        seen[same] = request.name
        requests.append(request)
    if not requests:
        raise InputError("there is no formula in the table")
    return requests


def check_columns(names: Iterable[str], source: str) -> None:
    """Refuse a table with a column missing, unknown or given twice."""
    names = list(names)
    for name in names:
        if name not in COLUMNS:
            raise InputError(f"{source} has a column {name!r}, which is not known: use {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise InputError(f"{source} has the column {name} twice")
    if {"box", "on"} <= set(names):
        raise InputError(f"{source} has the columns box and on, which mean the same: keep one")
    for name in _NEEDED:
        if name not in names and not (name == "box" and "on" in names):
            raise InputError(f"{source} has no column {name} (it has {', '.join(names) or 'none'})")


def _request(row: Mapping[str, Any], place: str) -> Request:
    check_columns(row, place)
    cells = {("box" if key == "on" else key): value for key, value in row.items() if value not in (None, "")}
    for key in _NEEDED:
        if not str(cells.get(key, "")).strip():
            raise InputError(f"{place}: {key} is empty")
    name = str(cells["name"]).strip()
    _check_name(name, place)
    numbers = {key: _number(cells[key], key, place) for key in ("eps", "rel") if key in cells}
    words = {key: str(cells[key]).strip() for key in ("formula", "box", "dtype", "construction") if key in cells}
    return Request(name=name, **words, **numbers)  # type: ignore[arg-type]


def _check_name(name: str, place: str) -> None:
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InputError(
            f"{place}: the name {shown!r} cannot be a folder name: use letters, digits and . , + - = ( ) _"
        )
    if _DEVICES.fullmatch(name) or name.casefold() in OWN_FILES:
        raise InputError(f"{place}: the name {name!r} is taken by something else: choose another")


def _number(cell: Any, key: str, place: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{place}: {key} is {str(cell)[:40]!r}, not a number above 0")
    return value


#: Points that local ascent starts from, trial points around each in a round, and the factor of the step after a round.
_ASCENT_STARTS = 24
_ASCENT_TRIALS = 48
_ASCENT_SHRINK = 0.75


@dataclass(frozen=True)
class Job:
    """A request, the verb, and the contents of the request's folder if it exists already."""

    request: Request
    verb: str
    packed: Packed | None = None
    claim: str = ""
    refusal: InputError | None = None  # why an existing folder cannot be read or replaced


@dataclass
class Done:
    """The result of a job: facts, a folder's files, files to add to it, or the message of its error."""

    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    folder: dict[str, bytes | str] | None = None
    added: dict[str, bytes | str] = field(default_factory=dict)
    error: str = ""
    kind: str = ""


def work(job: Job) -> Done:
    """Do a job; a failure becomes a message and does not raise."""
    done, start = Done(), time.perf_counter()
    try:
        _work(job, done)
    except TransformulaError as error:
        done.error, done.kind = str(error), type(error).__name__
    except MemoryError:
        done.error, done.kind = "there is not enough memory for it", "MemoryError"
    except Exception as error:  # a bug met by one formula must not end a batch of thousands
        said = " ".join(str(error).split())[:200]
        done.error, done.kind = f"internal error in transformula ({type(error).__name__}: {said})", "InternalFault"
    done.seconds = time.perf_counter() - start
    return done


def _work(job: Job, done: Done) -> None:
    model = _model(job, done)
    if job.verb == "verify":
        result = verify_files(model.packed, model.certificate.to_json())
        if not result.verified:
            raise NotProvenError(f"it does not verify: {'; '.join(result.reasons)}")
    elif job.packed is not None:
        require_proof(model.packed, model.certificate)
    if job.verb == "export":
        done.added[ONNX_FILE] = onnx_bytes(model.packed, model.certificate, proven=True)
    if job.verb == "report":
        verification = verify_files(model.packed, model.certificate.to_json())
        done.added[REPORT_FILE] = report_page(model, job.request.name, verification)
    certificate, found = model.certificate, largest_found_error(model)
    done.facts = {
        "construction": model.construction,
        "layers": model.layers,
        "tokens": model.tokens,
        "parameters": model.parameter_count,
        "norm": norm_of(certificate),
        "eps": certificate.eps,
        "bound": certificate.bound,
        "found": found if math.isfinite(found) else None,
    }


def _model(job: Job, done: Done) -> Model:
    if job.refusal is not None:
        raise job.refusal
    if job.packed is not None:
        return Model.from_packed(job.packed, job.claim)
    asked = job.request
    model = compile(asked.formula, asked.box, asked.eps, asked.construction, asked.dtype, rel=asked.rel)
    done.folder = model.contents
    return model


def largest_found_error(model: Model, points: int = 4_000, rounds: int = 12) -> float:
    """Largest |computed − formula| found at random points, corners and by local ascent, evaluated with Arb.

    A lower bound of the true error, where the certificate is an upper bound.

    Examples
    --------
    >>> import transformula as tf
    >>> model = tf.compile("sin(x)", on="x=0..3", eps=1e-3)
    >>> 1e-5 < largest_found_error(model) <= model.certificate.bound
    True
    """
    assert isinstance(model.formula, Formula), "samples are checked one by one"
    return max(_found_error(model, k, expr, points, rounds) for k, expr in enumerate(model.formula.outputs))


def _found_error(model: Model, output: int, expr: Expr, points: int, rounds: int) -> float:
    rng, names = np.random.default_rng(0), model.box.variables
    low, high = np.array(model.box.floats()).T
    low, high = np.nextafter(low, high), np.nextafter(high, low)  # float ends may lie a rounding outside

    def computed(x: NDArray[np.float64]) -> Any:
        return np.asarray(model(x), dtype=np.float64).reshape(len(x), -1)[:, output]

    def wrong(x: NDArray[np.float64]) -> Any:
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.abs(computed(x) - evaluate(expr, names, list(x.T))))

    t = rng.random((points, len(low)))
    x = low + (high - low) * np.where(rng.random(t.shape) < 0.25, np.round(t), t)
    best = x[np.argsort(wrong(x))[-_ASCENT_STARTS:]]
    step = (high - low) / 8
    for _ in range(rounds):
        near = np.clip(best[:, None] + step * rng.uniform(-1, 1, (1, _ASCENT_TRIALS, len(low))), low, high)
        trial = np.concatenate([best[:, None], near], axis=1)
        sizes = wrong(trial.reshape(-1, len(low))).reshape(trial.shape[:2])
        best = trial[np.arange(len(best)), sizes.argmax(axis=1)]
        step = step * _ASCENT_SHRINK
    truth = evaluate_accurately(expr, names, list(best.T))
    return float(np.abs(computed(best) - truth).max())
