"""The driver: parse → construct → certify → package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformula import proofs
from transformula.asking import absolute, at_positions, check_dtype, check_positive, options_of, read
from transformula.constructions.attempts import Built
from transformula.constructions.chooser import DEFAULT_EPS, Options, Round, attempts, rounds
from transformula.constructions.registry import MEMORIZE, Construction
from transformula.errors import (
    InputError,
    NotProvenError,
    RefutedError,
    TransformulaError,
    UnboundedError,
    closer,
)
from transformula.formulas.boxes import box_of
from transformula.formulas.samples import Samples
from transformula.kernel.boxes import Formula
from transformula.kernel.check import Verification, prove
from transformula.kernel.description import EVIDENCE_FILE, Description, parse_json
from transformula.kernel.evidence import Evidence
from transformula.kernel.files import unpack
from transformula.model import Model
from transformula.packing import certify, check_bound, outlined, pack
from transformula.patience import PATIENCE, OutOfPatience, patient
from transformula.searching.ground import prepared

#: What part of the patience is left for the constructions that are tried when the first could not be proven.
_FALLBACKS = 0.15
_BEYOND_FLOATS = "numbers beyond the range of floats came up: rescale the variables or the formula"
#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0
#: Bounds this many times too large are not the tables' fault.
_FAR_OFF = 1000.0


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
    patience: float = PATIENCE,
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
    patience : float
        Seconds of processor time after which nothing new is searched for: what was proven by then is returned,
        and if nothing was, the best bound is told.

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
    parsed = at_positions(read(formula, box_of(on)), shape)
    check_positive(patience, "patience")
    refusals: list[TransformulaError] = []
    try:
        with patient(patience):
            if rel is not None:
                eps = absolute(rel, eps, prepared(parsed).extended)
            options = options_of(eps, construction, dtype, multi_head, layers, shape, parsed)
            first, *others = rounds(parsed, options)
            if proven := _proven(first, parsed, options, refusals):
                return min(proven, key=_size)
            with patient(_FALLBACKS * patience):
                for competing in others:
                    if proven := _proven(competing, parsed, options, refusals):
                        return min(proven, key=_size)
    except OutOfPatience as tired:
        raise _tired(refusals, tired) from None
    raise _most_telling(refusals)


def _proven(competing: Round, formula: Formula, options: Options, refusals: list[TransformulaError]) -> list[Model]:
    """What each construction of a round could prove; ``refusals`` gets why the others could not."""
    proven: list[Model] = []
    for kind in competing:
        try:
            proven.append(_first_proven(kind, formula, options, refusals))
        except (NotProvenError, InputError) as error:
            refusals.append(error)
        except OutOfPatience:
            if not proven:
                raise
    return proven


def _first_proven(
    construction: Construction, formula: Formula, options: Options, refusals: list[TransformulaError]
) -> Model:
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
                if _is_hopeless(error, options.eps):
                    hopeless.add(attempt.group)
    except OutOfPatience:
        if closest is not None:
            refusals.append(closest)
        raise
    except OverflowError:
        closest = closer(NotProvenError(_BEYOND_FLOATS), closest)
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


def _is_hopeless(error: NotProvenError, eps: float | None) -> bool:
    """Whether attempts of the same group, which differ in their tables only, would fail as well."""
    rounding, bound = error.rounding or 0.0, error.best_bound or 0.0
    far = eps is not None and (rounding > _HOPELESS * eps or bound > _FAR_OFF * eps)
    return far or isinstance(error, UnboundedError)


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


def _tired(refusals: Sequence[TransformulaError], tired: OutOfPatience) -> NotProvenError:
    """The search has taken as long as it may: say so, with what was reached."""
    ended = f"the search ended after {tired.seconds:.0f} s of processor time: give it more patience"
    if not refusals:
        return NotProvenError(f"nothing was proven yet when {ended}, or ask for a larger eps")
    reached = _most_telling(refusals)
    numbers = {name: getattr(reached, name, None) for name in ("best_bound", "measured", "rounding")}
    return NotProvenError(f"{reached}; {ended}", place=getattr(reached, "place", ""), **numbers)


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

    check_positive(eps)
    check_dtype(dtype)
    samples = Samples.of(x, y)
    built = Built(construct_memorize(samples, eps, dtype))
    return package(MEMORIZE, built, samples, Options(eps=eps, dtype=dtype))


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
