"""The driver: parse → construct → certify → package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformula.certificates.checker import Verification, certify, verify_files, verify_folder
from transformula.constructions.chooser import CONSTRUCTIONS, candidates
from transformula.errors import InputError, NotProvenError
from transformula.formulas.formula import Formula
from transformula.model import Model
from transformula.transformers.files import pack
from transformula.transformers.weights import DTYPES, Weights


def compile(
    formula: str | Sequence[str],
    on: Any,
    eps: float | None = None,
    construction: str = "auto",
    dtype: str = "float64",
    multi_head: bool = False,
) -> Model:
    """Compile a formula into a Transformer, with a proof of how close it is.

    Parameters
    ----------
    formula : str or sequence of str
        What to compute; several formulas make several outputs.
    on : str, mapping or Box
        The box of inputs: ``"x=0..2*pi, y=-1/3..1"`` or ``{"x": (0, 1)}``.
    eps : float, optional
        Tolerance for |computed − formula| on the whole box, rounding included. Without it, whatever is
        proven becomes the claim.
    construction : str
        Which theorem to use; ``"auto"`` picks.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.
    multi_head : bool
        For polynomials: ⌈log₂ q⌉ blocks with several heads instead of q blocks with one.

    Returns
    -------
    Model

    Raises
    ------
    transformula.errors.InputError
        The formula, the box or an option can not be used.
    transformula.errors.NotProvenError
        No construction could be proven to meet ``eps``; the error carries the best bound.

    Examples
    --------
    >>> model = compile("x1*x2 - x1/3", on="x1..x2=-1..1")
    >>> model.construction, model.layers, model.tokens
    ('polynomial', 2, 2)
    """
    eps = _check_options(eps, construction, dtype)
    parsed = Formula.of(formula, on)
    shortfall: NotProvenError | None = None
    for name, weights in candidates(parsed, construction, dtype, multi_head):
        try:
            return _package(name, weights, parsed, eps)
        except NotProvenError as error:
            shortfall = _better(shortfall, error)
    assert shortfall is not None, "a construction yields candidates or raises"
    raise shortfall


def _check_options(eps: float | None, construction: str, dtype: str) -> float | None:
    if eps is not None and not (isinstance(eps, (int, float)) and math.isfinite(eps) and eps > 0):
        raise InputError(f"eps must be a number above 0, not {eps!r}")
    if construction not in ("auto", *CONSTRUCTIONS):
        raise InputError(f"unknown construction {construction!r}: choose auto, {', '.join(CONSTRUCTIONS)}")
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}: choose {' or '.join(DTYPES)}")
    return None if eps is None else float(eps)


def _package(name: str, weights: Weights, formula: Formula, eps: float | None) -> Model:
    description = {
        "construction": name,
        "formulas": list(formula.texts),
        "box": str(formula.box),
    }
    packed = pack(weights, description)
    certificate = certify(name, weights, formula, packed, eps)
    return Model(name, formula, weights, packed, certificate)


def _better(old: NotProvenError | None, new: NotProvenError) -> NotProvenError:
    if old is None or (new.best_bound or math.inf) < (old.best_bound or math.inf):
        return new
    return old


def load(folder: str | Path) -> Model:
    """Load a saved model folder."""
    return Model.load(folder)


def verify(model: Model | str | Path) -> Verification:
    """Prove a model's claim again, from its weights alone.

    Examples
    --------
    >>> verify(compile("x**3", on="x=-2..2")).verified
    True
    """
    if isinstance(model, Model):
        return verify_files(model.packed, model.certificate.to_json())
    return verify_folder(model)


__all__: Sequence[str] = ["compile", "load", "verify"]
