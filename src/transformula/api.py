"""The public verbs: compile, memorize, load and verify."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from transformula import proven
from transformula.compiler import policy
from transformula.compiler.attempts import Built, Options, known_dtype, positive
from transformula.compiler.certify import package
from transformula.compiler.constructions import COMPACT, MEMORIZE
from transformula.compiler.driver import compile_formula
from transformula.files import as_path
from transformula.formula.sample_target import Samples
from transformula.kernel.check import Verification
from transformula.model import Model


def compile(
    formula: Any,
    on: Any,
    eps: float | None = None,
    construction: str = "auto",
    dtype: str = "float64",
    multi_head: bool = False,
    layers: int | None = None,
    shape: tuple[int, int] | None = None,
    rel: float | None = None,
    time_limit: float | None = None,
    pointwise: float | None = None,
) -> Model:
    """Compile a formula into a Transformer, with a proof of how close it is.

    Parameters
    ----------
    formula : str, sympy expression, function, or sequence of these
        What to compute; several formulas make several outputs. A function of named arguments is called with
        symbols, and the operations on them are recorded.
    on : str, mapping or Box
        The box of inputs: ``"x=0..2*pi, y=-1/3..1"`` or ``{"x": (0, 1)}``.
    eps : float, optional
        Tolerance for |computed − formula| on the whole box, rounding included. Without it, an exact construction claims
        what it can prove, and the others aim at 1e-6, or at that share of the largest |formula|, rounded down to a
        power of ten, where that is above 1000 or below 0.001. For ``yun`` it bounds the *mean* of that error over the
        box.
    construction : str
        Which construction to use: auto, polynomial (exact, or an approximation if the formula is none), corollary
        (always an approximation), lookup, partition, circuit, attention-only, local-polynomials or yun.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.
    multi_head : bool
        For polynomials: ⌈log₂ q⌉ blocks with several heads instead of q blocks with one.
    layers : int, optional
        Set to 1 to require a single layer.
    shape : (n, d), optional
        Sequence to sequence: the n·d variables of the box are a sequence of n tokens with d features, and so are the
        n·d formulas. ``model(X)`` then takes and returns samples × n × d. With d variables and d formulas, every
        position computes them from its own features.
    rel : float, optional
        The tolerance relative to the largest |formula| on the box, instead of ``eps``; with several
        formulas, to the smallest of their largest values. The certificate states it as an absolute one.
    pointwise : float, optional
        The tolerance relative to |formula| at every point, instead of ``eps``: the certificate also states
        |computed − formula| <= relative · |formula|. The formula must not be 0 on the box.
    time_limit : float, optional
        Seconds after which the search ends, with the best model proven by then or with a refusal that says how close it
        came. Without it, a search ends after a fixed amount of work: for up to six variables about eight seconds, or
        twenty if nothing has failed by then. A longer limit lets it do more.

    Returns
    -------
    Model

    Raises
    ------
    transformula.errors.InputError
        The formula, the box or an option cannot be used.
    transformula.errors.NotProvenError
        No construction could be proven to meet ``eps``; the error carries the best bound.

    Examples
    --------
    >>> model = compile("x1*x2 - x1/3", on="x1..x2=-1..1")
    >>> model.construction, model.layers, model.tokens
    ('polynomial', 2, 2)
    >>> model = compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=1e-6)
    >>> model.construction, model.layers, model.heads, model.memory_tokens < 40
    ('lookup', 1, 2, True)
    >>> round(compile("7*sin(x)", on="x=0..2*pi", rel=1e-3).certificate.eps, 9)
    0.007
    """
    return compile_formula(
        formula,
        on,
        eps=eps,
        rel=rel,
        pointwise=pointwise,
        construction=construction,
        dtype=dtype,
        multi_head=multi_head,
        layers=layers,
        shape=shape,
        time_limit=time_limit,
    )


def memorize(x: Any, y: Any, eps: float = policy.DEFAULT_EPS, dtype: str = "float64", compact: bool = False) -> Model:
    """A Transformer that reproduces a finite table, certified at every sample.

    Parameters
    ----------
    x : array_like
        Samples × inputs.
    y : array_like
        Samples × outputs; repeated samples must agree.
    eps : float
        Tolerance at every sample, rounding included.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.
    compact : bool
        For one output with two values: labels become bits of words, which takes a few dozen layers and far fewer
        parameters than one token for each sample in one layer (`compiler.gallery.memories` has the rate).

    Examples
    --------
    >>> model = memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0])
    >>> model([[0, 1], [1, 1]]).round(6).tolist()
    [1.0, 0.0]
    """
    from transformula.compiler.gallery.memories import construct_compact, construct_memorize

    tolerance, form = positive(eps, "eps") or policy.DEFAULT_EPS, known_dtype(dtype)
    samples, options = Samples.of(x, y), Options(eps=tolerance, dtype=form)
    with np.errstate(all="ignore"):  # numbers beyond floats are refused by what is made of them
        if compact:
            return package(COMPACT, Built(construct_compact(samples, form)), samples, options)
        return package(MEMORIZE, Built(construct_memorize(samples, tolerance, form)), samples, options)


def load(folder: str | Path) -> Model:
    """Load a saved model folder. Its bound is only *claimed* until `verify` has proven it in this process.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as where:
    ...     model = load(compile("x*y", on="x=0..1, y=0..1").save(where + "/product"))
    >>> model.status  # this process has just proven the very same contents
    'proven'
    """
    return Model.load(folder)


def verify(model: Model | str | Path) -> Verification:
    """Prove a model's claim again, from its files alone.

    Examples
    --------
    >>> verify(compile("x**3", on="x=-2..2")).verified
    True
    """
    if isinstance(model, Model):
        return proven.verify_files(model.packed, model.certificate.to_json())
    return proven.verify_folder(as_path(model))
