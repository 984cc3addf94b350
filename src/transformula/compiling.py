"""The driver: parse → construct → certify → package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformula import proofs
from transformula.constructions.attempts import Built
from transformula.constructions.chooser import DEFAULT_EPS, Options, attempts, rounds
from transformula.constructions.registry import MEMORIZE, Construction, chosen
from transformula.errors import FormulaError, InputError, NotProvenError, RefutedError, TransformulaError, closer
from transformula.formulas.boxes import box_of
from transformula.formulas.hints import hint
from transformula.formulas.peaks import peak
from transformula.formulas.positions import at_every_position
from transformula.formulas.samples import Samples
from transformula.kernel.boxes import MAX_VARIABLES, Box, Formula
from transformula.kernel.check import Verification, prove
from transformula.kernel.description import EVIDENCE_FILE, Description, parse_json
from transformula.kernel.evidence import Evidence
from transformula.kernel.files import unpack
from transformula.kernel.weights import DTYPES
from transformula.model import Model
from transformula.packing import certify, check_bound, outlined, pack
from transformula.searching.ground import prepared
from transformula.threads import one_thread

#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0


def compile(
    formula: str | Sequence[str],
    on: Any,
    eps: float | None = None,
    construction: str = "auto",
    dtype: str = "float64",
    multi_head: bool = False,
    layers: int | None = None,
    shape: tuple[int, int] | None = None,
    rel: float | None = None,
) -> Model:
    """Compile a formula into a Transformer, with a proof of how close it is.

    Parameters
    ----------
    formula : str or sequence of str
        What to compute; several formulas make several outputs.
    on : str, mapping or Box
        The box of inputs: ``"x=0..2*pi, y=-1/3..1"`` or ``{"x": (0, 1)}``.
    eps : float, optional
        Tolerance for |computed − formula| on the whole box, rounding included. Without it, an exact
        construction claims what it can prove, and the others aim at 1e-6.
    construction : {"auto", "polynomial", "lookup", "partition", "circuit"}
        Which theorem to use.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.
    multi_head : bool
        For polynomials: ⌈log₂ q⌉ blocks with several heads instead of q blocks with one.
    layers : int, optional
        1 insists on a single layer.
    shape : (n, d), optional
        Sequence to sequence: the n·d variables of the box are a sequence of n tokens with d features,
        and so are the n·d formulas. ``model(X)`` then takes and gives samples × n × d. With d variables
        and d formulas, every position computes them from its own features.
    rel : float, optional
        The tolerance relative to the largest |formula| on the box, instead of ``eps``; with several
        formulas, to the smallest of their largest values. The certificate states it as an absolute one.

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
    parsed = _at_positions(_read(formula, box_of(on)), shape)
    if rel is not None:
        eps = _absolute(rel, eps, prepared(parsed).extended)
    options = _options(eps, construction, dtype, multi_head, layers, shape, parsed)
    refusals: list[TransformulaError] = []
    for competing in rounds(parsed, options):
        proven = []
        for kind in competing:
            try:
                proven.append(_first_proven(kind, parsed, options))
            except (NotProvenError, InputError) as error:
                refusals.append(error)
        if proven:
            return min(proven, key=_size)
    raise _most_telling(refusals)


def _read(formula: Any, box: Box) -> Formula:
    """Parse, and where that fails say what to write instead, if the mistake is a known one."""
    try:
        return Formula.of(formula, box)
    except FormulaError as error:
        if not (said := hint(formula, box.variables)):
            raise
        raise FormulaError(f"{error}: {said}") from None


def _first_proven(construction: Construction, formula: Formula, options: Options) -> Model:
    """The first attempt of a construction whose proof closes, or the refusal that came closest."""
    closest: NotProvenError | None = None
    hopeless: set[int] = set()
    try:
        for attempt in attempts(construction, formula, options):
            if attempt.group in hopeless:
                continue
            try:
                return package(attempt.construction, attempt.build(), formula, options)
            except NotProvenError as error:
                closest = closer(error, closest)
                if options.eps and (error.rounding or 0.0) > _HOPELESS * options.eps:
                    hopeless.add(attempt.group)
    except TransformulaError:
        if closest is None:
            raise  # else what was almost proven says more than why the rest could not even be begun
    assert closest is not None, "a construction yields attempts or raises"
    if isinstance(closest, RefutedError):  # said of weights that were just made: errors went too far
        other = "" if options.dtype == "float64" else ", or use float64"
        raise NotProvenError(
            f"no {construction.name} could be proven, errors carry too far: {closest}; "
            f"ask for a larger eps or take a smaller box{other}",
            place=closest.place,
        )
    raise closest


def _size(model: Model) -> float:
    """Numbers in the model; a single layer is worth half as many again."""
    return model.parameter_count / (1.5 if model.layers == 1 else 1.0)


def _most_telling(refusals: Sequence[TransformulaError]) -> TransformulaError:
    """The proof that came closest; if nothing could even be built, the first reason."""
    closest: NotProvenError | None = None
    for error in refusals:
        if isinstance(error, NotProvenError):
            closest = closer(error, closest)
    return closest or refusals[0]


def memorize(x: Any, y: Any, eps: float = DEFAULT_EPS, dtype: str = "float64") -> Model:
    """A one-layer Transformer that reproduces a finite table, certified at every sample.

    Parameters
    ----------
    x, y : array-like
        Samples × inputs and samples × outputs. Repeated samples must agree.
    eps : float
        Tolerance at every sample, rounding included.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.

    Examples
    --------
    >>> model = memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0])
    >>> model([[0, 1], [1, 1]]).round(6).tolist()
    [1.0, 0.0]
    """
    from transformula.constructions.memorize import construct_memorize

    _check_eps(eps)
    _check_dtype(dtype)
    samples = Samples.of(x, y)
    built = Built(construct_memorize(samples, eps, dtype))
    return package(MEMORIZE, built, samples, Options(eps=eps, dtype=dtype))


def _options(
    eps: float | None,
    construction: str,
    dtype: str,
    multi_head: bool,
    layers: int | None,
    shape: tuple[int, int] | None,
    formula: Formula,
) -> Options:
    _check_eps(eps)
    _check_dtype(dtype)
    wanted = chosen(construction)
    if layers not in (None, 1):
        raise InputError("layers can be left open or set to 1")
    if shape is not None:
        shape = _check_shape(shape, formula)
    return Options(None if eps is None else float(eps), wanted, dtype, multi_head, layers, shape)


def _absolute(rel: float, eps: float | None, formula: Formula) -> float:
    """A tolerance that is at most rel · sup|f| for every output f."""
    if eps is not None:
        raise InputError("give either eps or rel, not both")
    _check_eps(rel, "rel")
    sizes = [peak(expr, formula.box) for expr in formula.outputs]
    if min(sizes) == 0:
        text = formula.texts[sizes.index(0)]
        raise InputError(f"rel needs a value of {text} on the box that is not 0, and found none: give eps")
    absolute = math.nextafter(float(rel) * min(sizes), 0)
    if not 0 < absolute < math.inf:
        raise InputError(f"rel = {rel:g} of the largest value {min(sizes):g} is no float above 0: give eps")
    return absolute


def _check_eps(eps: object, name: str = "eps") -> None:
    if eps is not None and not (isinstance(eps, (int, float)) and math.isfinite(eps) and eps > 0):
        raise InputError(f"{name} must be a number above 0, not {eps!r}")


def _check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}: choose {' or '.join(DTYPES)}")


def _at_positions(formula: Formula, shape: Any) -> Formula:
    """The formula of one position, repeated for all, where it has one position's variables only."""
    try:
        n, d = shape
    except (TypeError, ValueError):
        return formula
    if formula.box.dimension == d == len(formula.outputs) and isinstance(n, int) and 1 < n <= MAX_VARIABLES:
        return at_every_position(formula, n)
    return formula


def _check_shape(shape: Sequence[int], formula: Formula) -> tuple[int, int]:
    if len(shape) != 2 or not all(isinstance(v, int) and v > 0 for v in shape):
        raise InputError(f"shape must be (positions, features), not {shape!r}")
    n, d = shape
    if n * d != formula.box.dimension or n * d != len(formula.outputs):
        raise InputError(
            f"a sequence of shape {n} x {d} needs {n * d} variables and {n * d} formulas "
            f"(or {d} of each, the same for every position), "
            f"not {formula.box.dimension} and {len(formula.outputs)}"
        )
    return n, d


def package(construction: Construction, built: Built, target: Formula | Samples, options: Options) -> Model:
    """Search for the evidence, store it, and prove the claim from what is stored."""
    name, shape = construction.name, None if options.shape is None else list(options.shape)
    if isinstance(target, Samples):
        plain = Description(name, samples={"x": target.x.tolist(), "y": target.y.tolist()})
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
    """Prove a model's claim again, from its weights alone.

    Examples
    --------
    >>> verify(compile("x**3", on="x=-2..2")).verified
    True
    """
    if isinstance(model, Model):
        return proofs.verify_files(model.packed, model.certificate.to_json())
    return proofs.verify_folder(model)
