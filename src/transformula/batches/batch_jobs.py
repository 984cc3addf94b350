"""What a worker does with one request. Files travel as bytes, so that a cluster needs no disk in common."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from transformula.api import compile
from transformula.batches.attack import attacked_error
from transformula.batches.batch_requests import Request
from transformula.errors import InputError, NotProvenError, TransformulaError
from transformula.kernel.folder.model_files import Packed
from transformula.model import Model
from transformula.model_folder import ONNX_FILE, REPORT_FILE
from transformula.proven import norm_of, require_proof, verify_files


@dataclass(frozen=True)
class Job:
    """A request, what to do, and the contents of the folder if it is there already."""

    request: Request
    verb: str
    packed: Packed | None = None
    claim: str = ""
    refusal: InputError | None = None  # why the folder that is there cannot be read or replaced


@dataclass
class Done:
    """What came of a job: facts, a folder's files, files to add to it, or a sentence that says why not."""

    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    folder: dict[str, bytes | str] | None = None
    added: dict[str, bytes | str] = field(default_factory=dict)
    error: str = ""
    kind: str = ""


def work(job: Job) -> Done:
    """Do a job; what fails is said in a sentence and does not raise."""
    done, start = Done(), time.perf_counter()
    try:
        _work(job, done)
    except TransformulaError as error:
        done.error, done.kind = str(error), type(error).__name__
    except MemoryError:
        done.error, done.kind = "there is not enough memory for it", "MemoryError"
    except Exception as error:  # a fault of ours in one formula must not end a sweep of thousands
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
        from transformula.export.onnx_files import onnx_bytes

        done.added[ONNX_FILE] = onnx_bytes(model.packed, model.certificate, proven=True)
    if job.verb == "report":
        from transformula.show.report_page import report_page

        verification = verify_files(model.packed, model.certificate.to_json())
        done.added[REPORT_FILE] = report_page(model, job.request.name, verification)
    certificate, attacked = model.certificate, attacked_error(model)
    done.facts = {
        "construction": model.construction,
        "layers": model.layers,
        "tokens": model.tokens,
        "parameters": model.parameter_count,
        "norm": norm_of(certificate),
        "eps": certificate.eps,
        "bound": certificate.bound,
        "attacked": attacked if math.isfinite(attacked) else None,
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
