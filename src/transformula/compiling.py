"""The driver: parse → construct → certify → package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformula import proofs
from transformula.attempting import OUT_OF_WORK, Search
from transformula.constructions.attempts import Built
from transformula.constructions.chooser import DEFAULT_EPS
from transformula.constructions.options import (
    Options,
    absolute,
    at_positions,
    check_dtype,
    check_positive,
    checked_options,
)
from transformula.constructions.registry import COMPACT, MEMORIZE
from transformula.errors import FormulaError, SearchInterrupted
from transformula.formulas.boxes import box_of
from transformula.formulas.hints import advice, hint
from transformula.formulas.notations import as_texts
from transformula.formulas.samples import Samples
from transformula.kernel.check import Verification
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.limits import OutOfTime, OutOfWork, limited
from transformula.model import Model
from transformula.packaging import package
from transformula.searching.ground import prepared


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
) -> Model:
    """Compile a formula into a Transformer, with a proof of how close it is.

    Parameters
    ----------
    formula : str, sympy expression, function, or sequence of these
        What to compute; several formulas make several outputs. A function of named arguments is called once, with
        symbols, and the operations on them are recorded.
    on : str, mapping or Box
        The box of inputs: ``"x=0..2*pi, y=-1/3..1"`` or ``{"x": (0, 1)}``.
    eps : float, optional
        Tolerance for |computed − formula| on the whole box, rounding included. Without it, an exact construction claims
        what it can prove, and the others aim at 1e-6. For ``yun`` it bounds the *mean* of that error over the box.
    construction : str
        Which construction to use: auto, polynomial, lookup, partition, circuit, attention-only, local-polynomials or
        yun.
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
    parsed = at_positions(_read(formula, box_of(on)), shape)
    check_positive(time_limit, "time_limit")
    search = Search(parsed, time_limit)
    try:
        with limited(search.most, time_limit):
            if rel is not None:
                eps = absolute(rel, eps, prepared(parsed).extended)
            options = checked_options(eps, construction, dtype, multi_head, layers, shape, parsed)
            return search.run(options)
    except OutOfTime:
        raise search.stopped(f"the search was ended after {time_limit:g} s") from None
    except OutOfWork:
        raise search.stopped(OUT_OF_WORK) from None
    except KeyboardInterrupt:
        raise SearchInterrupted(str(search.stopped("interrupted"))) from None


def _read(formula: Any, box: Box) -> Formula:
    """Parse; if that fails because of a known mistake, say what to write instead."""
    try:
        return Formula.of(as_texts(formula, box.variables), box)
    except FormulaError as error:
        if not (said := advice(str(error)) or hint(formula, box.variables)):
            raise
        raise FormulaError(f"{error}: {said}") from None


def memorize(x: Any, y: Any, eps: float = DEFAULT_EPS, dtype: str = "float64", compact: bool = False) -> Model:
    """A Transformer that reproduces a finite table, certified at every sample.

    Parameters
    ----------
    x, y : array-like
        Samples × inputs and samples × outputs. Repeated samples must agree.
    eps : float
        Tolerance at every sample, rounding included.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.
    compact : bool
        For one output with two values: labels become bits of words, which takes a few dozen layers and far fewer
        parameters than one token for each sample in one layer (`constructions.compact` has the rate).

    Examples
    --------
    >>> model = memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0])
    >>> model([[0, 1], [1, 1]]).round(6).tolist()
    [1.0, 0.0]
    """
    from transformula.constructions.compact import construct_compact
    from transformula.constructions.memorize import construct_memorize

    check_positive(eps, "eps")
    check_dtype(dtype)
    samples = Samples.of(x, y)
    options = Options(eps=eps, dtype=dtype)
    if compact:
        return package(COMPACT, Built(construct_compact(samples, dtype)), samples, options)
    return package(MEMORIZE, Built(construct_memorize(samples, eps, dtype)), samples, options)


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
        return proofs.verify_files(model.packed, model.certificate.to_json())
    return proofs.verify_folder(model)
