"""From built weights to a model: evidence is searched for and stored, and the claim is proven from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transformula import proven
from transformula.blas_threads import one_thread
from transformula.budget import SECOND, OutOfWork, checkpoint, limited
from transformula.compiler.attempts import Built
from transformula.compiler.certify import certify, check_bound, outlined, pack
from transformula.compiler.constructions import Construction
from transformula.compiler.options import Options
from transformula.compiler.plan import DEFAULT_EPS
from transformula.errors import RefutedError
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.check import prove
from transformula.kernel.folder.certificate import Proof
from transformula.kernel.folder.description import EVIDENCE_FILE, Description, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model


def package(construction: Construction, built: Built, target: Formula | Samples | Prompts, options: Options) -> Model:
    """Search for the evidence, store it, and prove the claim from what is stored."""
    name = construction.name
    plain = Description(name, **stated(target, options.shape), circuit=built.circuit)
    description = outlined(built.weights, plain)
    eps = DEFAULT_EPS if options.eps is None and not construction.exact else options.eps
    with one_thread():
        check_bound(_searched(built, description), eps, built.weights.dtype)
        packed = pack(built.weights, description, built.evidence.evidence())
        weights, stored = unpack(packed)
        proof = prove(weights, stored, Evidence(parse_json(packed.evidence, EVIDENCE_FILE)))
    certificate = certify(packed, stored, weights.dtype, proof, eps)
    proven.remember(packed, certificate)
    return Model(name, target, weights, packed, certificate, options.shape)


def _searched(built: Built, description: Description) -> Proof:
    """Run the kernel's rule over the finder, which searches for the evidence and may take a part of the work left."""
    try:
        with limited(built.evidence.most_work / SECOND):
            return prove(built.weights, description, built.evidence)
    except OutOfWork:
        checkpoint()  # where the whole search is out of work
        raise RefutedError("the search for a proof takes too much work") from None


def stated(target: Formula | Samples | Prompts, shape: tuple[int, int] | None = None) -> dict[str, Any]:
    """What a model stands for, as model.json states it."""
    if isinstance(target, Samples):
        return {"samples": {"x": target.x.tolist(), "y": target.y.tolist()}}
    if isinstance(target, Prompts):
        return {"task": target.stated}
    texts = list(target.typed or target.texts)
    return {"formulas": texts, "box": str(target.box), "shape": None if shape is None else list(shape)}


def claimed(model: Model, eps: float) -> Model:
    """The same model with the claim that it meets another tolerance, which its proven bound meets as well."""
    certificate = replace(model.certificate, eps=eps)
    proven.remember(model.packed, certificate)
    return replace(model, certificate=certificate)
