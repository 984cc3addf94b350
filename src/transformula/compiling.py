"""The driver: parse → construct → certify → package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformula import proofs
from transformula.constructions.attempts import Built
from transformula.constructions.chooser import DEFAULT_EPS, Round, attempts, rounds
from transformula.constructions.options import (
    Options,
    absolute,
    at_positions,
    check_dtype,
    check_positive,
    checked_options,
)
from transformula.constructions.registry import COMPACT, MEMORIZE, Construction
from transformula.errors import (
    FormulaError,
    InputError,
    NotProvenError,
    RefutedError,
    SearchInterrupted,
    TransformulaError,
    UnboundedError,
    closer,
    closest_bound,
)
from transformula.formulas.boxes import box_of
from transformula.formulas.hints import hint
from transformula.formulas.notations import as_texts
from transformula.formulas.prompts import Prompts
from transformula.formulas.samples import Samples
from transformula.kernel.boxes import Box, Formula
from transformula.kernel.check import Verification, prove
from transformula.kernel.description import EVIDENCE_FILE, Description, parse_json
from transformula.kernel.digits import at_most
from transformula.kernel.evidence import Evidence
from transformula.kernel.files import unpack
from transformula.limits import OutOfTime, OutOfWork, checkpoint, limited, part_of_the_rest
from transformula.model import Model
from transformula.packing import certify, check_bound, outlined, pack
from transformula.searching.ground import prepared
from transformula.threads import one_thread

#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0
#: Bounds this many times too large are not the tables' fault.
_FAR_OFF = 1000.0
#: Seconds of work that a search may take if nothing is said about it: for formulas of up to so many variables and
#: outputs, and at most. A construction may take a part of what is left, so that others can still be tried.
SECONDS, _SMALL, _MOST_SECONDS = 30.0, 6, 120.0
_EACH = 0.8
_ENDED = "no proof was found with the work that is usual for a formula of this size"
_BEYOND_FLOATS = "numbers beyond the range of floats came up: rescale the variables or the formula"
#: A single layer may have so many times the numbers of several.
_ONE_LAYER = 1.5


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
        symbols, and what it does to them is written down.
    on : str, mapping or Box
        The box of inputs: ``"x=0..2*pi, y=-1/3..1"`` or ``{"x": (0, 1)}``.
    eps : float, optional
        Tolerance for |computed − formula| on the whole box, rounding included. Without it, an exact
        construction claims what it can prove, and the others aim at 1e-6. For ``yun`` it is a tolerance for the
        *mean* of that over the box.
    construction : str
        Which theorem to use: auto, polynomial, lookup, partition, circuit, attention-only, local-polynomials or yun.
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
    time_limit : float, optional
        Seconds after which the search ends, with the best model that is proven by then or with a refusal
        that says how close it came. Without it, a search ends after a certain amount of work, about half a
        minute for up to six variables; a longer limit lets it do more.

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
    search = _Search(parsed)
    check_positive(time_limit, "time_limit")
    try:
        with limited(max(_usual_seconds(parsed), time_limit or 0.0), time_limit):
            if rel is not None:
                eps = absolute(rel, eps, prepared(parsed).extended)
            options = checked_options(eps, construction, dtype, multi_head, layers, shape, parsed)
            return search.run(options)
    except OutOfTime:
        if search.proven:
            return min(search.proven, key=_size)
        raise search.refusal(f"the time is up after {time_limit:g} s") from None
    except OutOfWork:
        raise search.refusal(_ENDED) from None
    except KeyboardInterrupt:
        raise SearchInterrupted(str(search.refusal("interrupted"))) from None


def _usual_seconds(formula: Formula) -> float:
    """How much work a search may take if nothing is said about it."""
    return min(SECONDS * max(1.0, max(formula.box.dimension, len(formula.outputs)) / _SMALL), _MOST_SECONDS)


def _read(formula: Any, box: Box) -> Formula:
    """Parse, and where that fails say what to write instead, if the mistake is a known one."""
    try:
        return Formula.of(as_texts(formula, box.variables), box)
    except FormulaError as error:
        if not (said := hint(formula, box.variables)):
            raise
        raise FormulaError(f"{error}: {said}") from None


class _Search:
    """Attempts, one after the other, and what is known of them at any moment."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self.proven: list[Model] = []
        self.closest: NotProvenError | None = None

    def run(self, options: Options) -> Model:
        """The smallest model of the first round in which one is proven, or the most telling refusal."""
        refusals: list[TransformulaError] = []
        *first, last = rounds(self.formula, options)
        for kinds in first:
            self.compete(kinds, options, refusals, _EACH)
            if self.proven:
                break
        else:
            self.compete(last, options, refusals, 1.0)
        if self.proven:
            return min(self.proven, key=_size)
        raise _most_telling(refusals)

    def compete(self, kinds: Round, options: Options, refusals: list[TransformulaError], part: float) -> None:
        """Add what constructions can prove to ``proven``, and why they cannot to ``refusals``.

        Each may take a part of the work that is left.
        """
        for kind in kinds:
            of_use = min((model.memory_tokens for model in self.proven), default=math.inf)
            if not of_use:
                return
            try:
                with part_of_the_rest(part):
                    self.proven.append(self.first_proven(kind, replace(options, most=of_use)))
            except (NotProvenError, InputError) as error:
                refusals.append(error)
            except OutOfWork:
                refusals.append(self.refusal(_ENDED))

    def first_proven(self, construction: Construction, options: Options) -> Model:
        """The first attempt of a construction whose proof closes, or the refusal that came closest."""
        closest: NotProvenError | None = None
        hopeless: set[int] = set()
        last = ""
        try:
            for attempt in attempts(construction, self.formula, options):
                checkpoint()
                if attempt.group in hopeless:
                    continue
                try:
                    return package(attempt.construction, attempt.build(), self.formula, options)
                except NotProvenError as error:
                    closest, self.closest = closer(error, closest), closer(error, self.closest)
                    again = isinstance(error, RefutedError) and str(error) == last  # whatever the tables are
                    if again or _is_hopeless(error, options.eps):
                        hopeless.add(attempt.group)
                    last = str(error)
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

    def refusal(self, why: str) -> NotProvenError:
        """What is known when the search has to end: how close it came, and where it stopped."""
        found = self.closest
        if found is None or closest_bound(found) == math.inf:
            return NotProvenError(f"{why}, before anything was proven: allow more time, or ask for a larger eps")
        if found.best_bound is not None:
            said = f"the best bound proven so far is {at_most(found.best_bound)}"
        else:
            said = f"no bound is proven so far, and the best table has a measured error of {found.measured:.3g}"
        near = f" ({found.place})" if found.place else ""
        return NotProvenError(
            f"{why}: {said}{near}; allow more time, or ask for a larger eps",
            found.best_bound, found.place, found.measured, found.rounding,
        )  # fmt: skip


def _is_hopeless(error: NotProvenError, eps: float | None) -> bool:
    """Whether attempts of the same group, which differ in their tables only, would fail as well."""
    rounding, bound = error.rounding or 0.0, error.best_bound or 0.0
    far = eps is not None and (rounding > _HOPELESS * eps or bound > _FAR_OFF * eps)
    return far or isinstance(error, UnboundedError)


def _size(model: Model) -> tuple[int, float]:
    """Its memory tokens, then its numbers, of which a single layer may have half as many again."""
    return model.memory_tokens, model.parameter_count / (_ONE_LAYER if model.layers == 1 else 1.0)


def _most_telling(refusals: Sequence[TransformulaError]) -> TransformulaError:
    """The proof that came closest; if nothing could even be built, the first reason."""
    closest: NotProvenError | None = None
    for error in refusals:
        if isinstance(error, NotProvenError):
            closest = closer(error, closest)
    return closest or refusals[0]


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
