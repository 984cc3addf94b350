"""One formula by every construction that applies, side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformula.api import compile
from transformula.compiler import policy
from transformula.compiler.constructions import CONSTRUCTIONS, COROLLARY, OFFERED, Construction
from transformula.errors import InputError, NotProvenError, TransformulaError
from transformula.proven import norm_of

#: Each construction, once with one head and once with several heads in a block where it can have them. The corollary
#: is the fallback of the polynomial, so it is not asked for.
TRIED: tuple[tuple[Construction, bool], ...] = tuple(
    (made, many)
    for made in map(CONSTRUCTIONS.__getitem__, OFFERED)
    if made is not COROLLARY
    for many in ((False, True) if "multi_head" in made.options else (False,))
)


@dataclass(frozen=True)
class Entry:
    """One construction: the size of its model and its proven bound, or the sentence of its refusal.

    The bound is of the error at every point of the box (``norm`` is "sup") or of its mean ("mean").
    """

    name: str
    title: str
    seconds: float
    layers: int | None = None
    heads: int | None = None
    memory_tokens: int | None = None
    parameters: int | None = None
    bound: float | None = None
    norm: str = "sup"
    refusal: str | None = None

    @property
    def proven(self) -> bool:
        """Whether there is a model."""
        return self.refusal is None


@dataclass(frozen=True)
class Comparison:
    """All constructions for one formula; ``smallest`` has the fewest parameters of those close at every point."""

    formula: str
    on: str
    dtype: str
    entries: tuple[Entry, ...]

    @property
    def smallest(self) -> Entry | None:
        """The model with the fewest parameters whose error is bounded at every point, if there is any."""
        everywhere = (e for e in self.entries if e.proven and e.norm == "sup")
        return min(everywhere, key=lambda e: e.parameters or 0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        best = self.smallest
        return {
            "formula": self.formula,
            "on": self.on,
            "dtype": self.dtype,
            "smallest": None if best is None else best.name,
            "constructions": [asdict(entry) for entry in self.entries],
        }


def compare(
    formula: str | Sequence[str], on: Any, eps: float | None = None, rel: float | None = None, dtype: str = "float64"
) -> Comparison:
    """Compile a formula by every construction, and compare what they cost.

    Parameters
    ----------
    formula, on, rel, dtype
        As for `transformula.compile`.
    eps : float, optional
        Tolerance that each of them has to be proven to meet; 1e-6 if neither ``eps`` nor ``rel`` is given.

    Raises
    ------
    transformula.errors.InputError
        If no construction can read the formula or the box.

    Examples
    --------
    >>> found = compare("x*y", on="x=0..1, y=0..1", eps=0.05)
    >>> [(e.name, e.layers, e.memory_tokens) for e in found.entries if e.name in ("polynomial", "circuit")]
    [('polynomial', 2, 0), ('circuit', 1, 3)]
    >>> found.smallest.name
    'polynomial'
    """
    found = list(entries(formula, on, eps, rel, dtype))
    mistakes = [error for _, error in found if isinstance(error, InputError)]
    if len(mistakes) == len(found):
        raise mistakes[-1]
    text = formula if isinstance(formula, str) else "; ".join(map(str, formula))
    return Comparison(str(text), str(on), dtype, tuple(entry for entry, _ in found))


def entries(
    formula: str | Sequence[str],
    on: Any,
    eps: float | None = None,
    rel: float | None = None,
    dtype: str = "float64",
    time_limit: float | None = None,
) -> Iterator[tuple[Entry, TransformulaError | None]]:
    """Each construction as soon as it is done, with the error that refused it; ``time_limit`` is for each of them."""
    wanted = policy.DEFAULT_EPS if eps is None and rel is None else eps
    for construction, multi_head in TRIED:
        name = construction.name + (", several heads" if multi_head else "")
        start = time.perf_counter()
        try:
            model = compile(formula, on, wanted, construction.name, dtype, multi_head, rel=rel, time_limit=time_limit)
        except (NotProvenError, InputError) as error:
            yield Entry(name, construction.title, time.perf_counter() - start, refusal=str(error)), error
            continue
        # an approximating polynomial is a construction of its own: the polynomial's fallback
        title, name = model.made_by.title, model.construction + (", several heads" if multi_head else "")
        sizes = model.layers, model.heads, model.memory_tokens, model.parameter_count, model.certificate.bound
        norm = norm_of(model.certificate)
        yield Entry(name, title, time.perf_counter() - start, *sizes, norm), None
