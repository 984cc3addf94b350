"""From built weights to a model: evidence is searched for and stored, and the claim is proven from it."""

from __future__ import annotations

from dataclasses import replace

from transformula import proofs
from transformula.constructions.attempts import Built
from transformula.constructions.chooser import DEFAULT_EPS
from transformula.constructions.options import Options
from transformula.constructions.registry import Construction
from transformula.formulas.prompts import Prompts
from transformula.formulas.samples import Samples
from transformula.kernel.check import prove
from transformula.kernel.folder.description import EVIDENCE_FILE, Description, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.files import unpack
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.packing import certify, check_bound, outlined, pack
from transformula.threads import one_thread


def package(construction: Construction, built: Built, target: Formula | Samples | Prompts, options: Options) -> Model:
    """Search for the evidence, store it, and prove the claim from what is stored."""
    name, shape = construction.name, None if options.shape is None else list(options.shape)
    if isinstance(target, Samples):
        plain = Description(name, samples={"x": target.x.tolist(), "y": target.y.tolist()})
    elif isinstance(target, Prompts):
        plain = Description(name, task=target.stated)
    else:
        texts = list(target.typed or target.texts)
        plain = Description(name, formulas=texts, box=str(target.box), shape=shape, circuit=built.circuit)
    description = outlined(built.weights, plain)
    eps = DEFAULT_EPS if options.eps is None and not construction.exact else options.eps
    with one_thread():
        check_bound(prove(built.weights, description, built.evidence), eps, built.weights.dtype)
        packed = pack(built.weights, description, built.evidence.evidence())
        weights, stored = unpack(packed)
        proof = prove(weights, stored, Evidence(parse_json(packed.evidence, EVIDENCE_FILE)))
    certificate = certify(packed, stored, weights.dtype, proof, eps)
    proofs.remember(packed, certificate)
    return Model(name, target, weights, packed, certificate, options.shape)


def claimed(model: Model, eps: float) -> Model:
    """The same model with the claim that it meets another tolerance, which its proven bound meets as well."""
    certificate = replace(model.certificate, eps=eps)
    proofs.remember(model.packed, certificate)
    return replace(model, certificate=certificate)
