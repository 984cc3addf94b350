"""Jobs of a batch, as a worker does them. Files travel as bytes, so that a cluster needs no shared disk."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.api import compile
from transformula.cluster.batch_requests import Request
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
