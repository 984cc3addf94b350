"""From built weights to a model: the evidence is searched for and stored, and the claim is proven from it.

The kernel reads what is written here (`transformula.kernel.folder.model_files`); this is the writing half, and the
certificate that goes with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from transformula import proven
from transformula.budget import SECOND, OutOfWork, checkpoint, limited, one_thread
from transformula.compiler.attempts import CLAIM_MARGIN, Built, Options
from transformula.compiler.constructions import Construction
from transformula.compiler.refusal import Shortfall
from transformula.errors import UnfinishedError
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.check import prove, relative_error
from transformula.kernel.enclosures.balls import float_above, to_fmpq
from transformula.kernel.folder.description import EVIDENCE_FILE, Certificate, Description, Mean, Proof, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, unpack
from transformula.kernel.folder.weights import Block, Weights, named_matrices
from transformula.kernel.rounding.formats import describe
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model


def package(construction: Construction, built: Built, target: Formula | Samples | Prompts, options: Options) -> Model:
    """Search for the evidence, store it, and prove the claim from what is stored."""
    name = construction.name
    plain = Description(name, **stated(target, options.shape), circuit=built.circuit)
    description = outlined(built.weights, plain)
    eps = options.tolerance(construction.exact)
    with one_thread():
        check_bound(_searched(built, description), eps, built.weights.dtype)
        found = built.evidence.evidence() | ({"inverse": [*options.inverse]} if options.inverse else {})
        packed = pack(built.weights, description, found)
        weights, stored = unpack(packed)
        proof = prove(weights, stored, Evidence(parse_json(packed.evidence, EVIDENCE_FILE)))
    certificate = certify(packed, stored, weights.dtype, proof, eps)
    if options.inverse:
        relative = relative_error(certificate, stored, Evidence(parse_json(packed.evidence, EVIDENCE_FILE)))
        above = float_above(to_fmpq(relative * Fraction(CLAIM_MARGIN)))
        certificate = replace(certificate, relative=above)
    proven.remember(packed, certificate)
    return Model(name, target, weights, packed, certificate, options.shape)


def _searched(built: Built, description: Description) -> Proof:
    """Run the kernel's rule over the finder, which searches for the evidence and may take a part of the work left."""
    try:
        with limited(built.evidence.most_work / SECOND):
            return prove(built.weights, description, built.evidence)
    except OutOfWork:
        checkpoint()  # where the whole search is out of work
        raise UnfinishedError("the search for a proof takes too much work") from None


def stated(target: Formula | Samples | Prompts, shape: tuple[int, int] | None = None) -> dict[str, Any]:
    """The target of a model, as model.json states it."""
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


def pack(weights: Weights, description: Description, evidence: Mapping[str, Any]) -> Packed:
    """Turn weights, their description and the evidence into file contents."""
    from safetensors.numpy import save

    arrays: dict[str, Any] = {}
    for name, matrix in named_matrices(weights):
        for part in ("rows", "cols", "values"):
            arrays[f"{name}.{part}"] = np.ascontiguousarray(getattr(matrix, part))
    text = json.dumps(evidence, separators=(",", ":"), allow_nan=False) + "\n"
    return Packed(save(arrays), outlined(weights, description).to_json(), text)


def outlined(weights: Weights, description: Description) -> Description:
    """The description with the outline of its weights filled in."""
    matrices, places = dict(named_matrices(weights)), enumerate(weights.first_places)
    return replace(
        description,
        inputs=list(weights.inputs),
        slots=list(weights.slots),
        tokens=weights.tokens,
        dtype=weights.dtype,
        blocks=[first if first < b else _block_outline(weights.blocks[b]) for b, first in places],
        shapes={name: list(matrix.shape) for name, matrix in matrices.items()},
        exact={name: [str(v) for v in m.exact] for name, m in matrices.items() if m.exact is not None},
    )


def _block_outline(block: Block) -> dict[str, Any]:
    return {
        "kind": block.attention.kind,
        "scale": block.attention.scale,
        "heads": [{"output": head.output is not None} for head in block.attention.heads],
        "feed_forward": block.feed_forward is not None,
    }


def certify(packed: Packed, description: Description, dtype: str, proof: Proof, eps: float | None) -> Certificate:
    """Write down what was proven, or refuse if it does not meet the tolerance.

    Without a tolerance the proven bound itself becomes the claim.
    """
    claimed = check_bound(proof, eps, dtype)
    return Certificate(
        construction=description.construction,
        approximation=claimed.approximation,
        rounding=claimed.rounding,
        eps=claimed.bound if eps is None else float(eps),
        dtype=dtype,
        rounding_model=describe(dtype),
        mean=claimed.mean,
        **packed.hashes,  # type: ignore[arg-type]
    )


def check_bound(proof: Proof, eps: float | None, dtype: str) -> Proof:
    """The bounds that a proof supports; refused if it does not meet the tolerance."""
    mean = proof.mean and Mean(*(getattr(proof.mean, f.name) * CLAIM_MARGIN for f in fields(Mean)))
    claimed = Proof(proof.approximation * CLAIM_MARGIN, proof.rounding * CLAIM_MARGIN, mean=mean)
    if not np.isfinite(claimed.bound) or (eps is not None and not claimed.bound <= eps):
        raise Shortfall(claimed, eps, dtype).error()
    return claimed
