"""The single place where models are packaged: weights, description and evidence become file contents.

The kernel reads what is written here (`transformula.kernel.folder.model_files`); this is the writing half, and the
certificate that goes with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from transformula.errors import NotProvenError
from transformula.kernel.digits import at_most
from transformula.kernel.folder.certificate import Certificate, Mean, Proof
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.folder.weights import Block, Weights, named_matrices
from transformula.kernel.rounding.formats import describe

#: Claims are this much above what was proven here, so that the last digits of another machine's
#: libraries cannot make an honest certificate fail.
CLAIM_MARGIN = 1.001


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
        message = shortfall(claimed, eps, dtype)
        raise NotProvenError(message, best_bound=claimed.bound, rounding=claimed.rounding)
    return claimed


def shortfall(proof: Proof, eps: float | None, dtype: str) -> str:
    """The message about a proof that does not meet the tolerance."""
    parts = f"approximation {at_most(proof.approximation)} + rounding {at_most(proof.rounding)}"
    parts += ", means over the box" if proof.mean else ""
    if eps is None:
        return f"no finite bound is proven: the best bound is {at_most(proof.bound)} ({parts})"
    advice = f"ask for eps >= {at_most(proof.bound, 2)}"
    if proof.rounding > eps and dtype == "float64":
        advice = f"rounding alone is more than that: {advice}, or take a smaller box"
    elif proof.rounding > eps:
        advice += ", or use float64"
    return f"eps = {eps:g} is not proven: the best bound is {at_most(proof.bound)} ({parts}); {advice}"
