"""What is stored is what is judged: floats must be the roundings of the rationals that stand beside them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from flint import arb

from transformula.certificates.proof import RefutedError
from transformula.certificates.rounding import FORMATS
from transformula.formulas.enclosures import precision
from transformula.transformers.weights import Weights, named_matrices, to_rational

_BITS = 96


def check_stored(weights: Weights, may_underflow: Collection[str] = ()) -> None:
    """Every float must be its rational rounded to the format (2u allows for double rounding).

    The slack is relative: a number that underflows may still be multiplied by a large one. Matrices that
    ``may_underflow`` multiply numbers of size at most 1, and their rule counts what underflow costs.
    """
    form = FORMATS[weights.dtype]
    with precision(_BITS):
        for name, matrix in named_matrices(weights):
            if matrix.values.dtype != weights.dtype:
                raise RefutedError(f"{name} is not stored in {weights.dtype}")
            if not np.isfinite(matrix.values).all():
                raise RefutedError(f"{name} has a number beyond {weights.dtype}'s range: use a smaller box")
            if matrix.exact is None:
                continue
            for stored, exact in zip(matrix.values.tolist(), matrix.exact, strict=True):
                slack = 2 * form.unit_roundoff * abs(arb(exact))
                slack += form.tiny if name in may_underflow else 0
                if not abs(arb(to_rational(stored) - exact)) <= slack:
                    raise RefutedError(f"{name} has a float {stored!r} that is not its rational {exact}")
