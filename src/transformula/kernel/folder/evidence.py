"""Evidence: where the box and the tables are cut, and which expressions bound which wires.

The rules ask for each item when they need it and say what it is for. This class hands out what evidence.json
holds; nothing in it is believed, every piece is evaluated again. A compiler passes a subclass that searches
for an item when it is asked, and writes down what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flint import arb

from transformula.kernel.exceptions import RefutedError

if TYPE_CHECKING:  # evidence is data: what it is evaluated with is the rules' affair
    from transformula.kernel.derivations.floors import Floors
    from transformula.kernel.enclosures.intervals import Ends
    from transformula.kernel.enclosures.regions import Region
    from transformula.kernel.enclosures.taylor_models import Floats
    from transformula.kernel.structures.stored_circuit import LinearForm
    from transformula.kernel.syntax.expression import Expr
    from transformula.kernel.tables.table_error import SoftmaxTable

Tree = Sequence[int]
Bound = Callable[["Floats", "Floats"], "Floats"]


class RangeClaim(NamedTuple):
    """``of`` is u (a wire's argument), w (its value) or a new quantity #q0, #q1, ..; ``text`` equals it."""

    of: str
    text: str
    cut: Tree


class Meant(NamedTuple):
    """The range that a table's argument is meant to have: as floats, rounded outwards, and if it is known as exactly
    the range that occurs, that range, with nodes of the table's function that are defined on all of it."""

    floats: tuple[float, float]
    exact: tuple[Ends | None, frozenset[Expr]] = (None, frozenset())


class Evidence:
    """The contents of evidence.json."""

    def __init__(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise RefutedError("evidence.json does not hold a JSON object")
        self.data: Mapping[str, Any] = data

    def defined(self, output: int, expr: Expr, region: Region, known: frozenset[Expr]) -> Any:
        """Parts of the box on each of which an output's formula is seen to be defined."""
        return self._item("defined", output)

    def sign(self, index: int, expr: Expr, region: Region, known: frozenset[Expr]) -> Any:
        """Parts of the box on each of which a sign is seen."""
        return self._item("signs", index)

    def apart(self, floors: Floors, known: frozenset[Expr]) -> Any:
        """Parts of the box on each of which formulas without and with floors are equal or close."""
        return self._item("apart", 0)

    def ranges(
        self, wire: int, of: str, found: tuple[float, float], region: Region, known: frozenset[Expr]
    ) -> list[RangeClaim]:
        """Claims that bound a wire's argument (u) or value (w), beside the range found from the wires it reads."""
        claims: Any = self._item("ranges", str(wire), {})
        try:
            return [RangeClaim(str(name), str(text), cut) for name, text, cut in claims]
        except (TypeError, ValueError):
            raise RefutedError("a range in evidence.json cannot be read") from None

    def pieces(
        self,
        wire: int,
        table: SoftmaxTable,
        function: Expr,
        names: Sequence[str],
        ends: Sequence[tuple[arb, arb]],
        meant: Meant | None = None,
    ) -> Any:
        """Cuts of the arguments that bound |table − function|."""
        return self._table(wire, "pieces")

    def cells(self, wire: int, function: Expr, low: float, high: float) -> Any:
        """Edges of cells on which a function's values and slopes are bounded."""
        return self._table(wire, "cells")

    def slopes(
        self, wire: int, table: SoftmaxTable, function: Expr | None, low: float, high: float, enough: float
    ) -> Any:
        """Edges of pieces on which |T' − f'| is bounded, or |T'| if there is no function."""
        return self._table(wire, "slopes")

    def softmax(self, wire: int, table: SoftmaxTable, ends: Sequence[tuple[arb, arb]]) -> Any:
        """For each axis, edges of intervals on which the rounding of softmax is bounded."""
        return self._table(wire, "softmax")

    def partition(
        self, wire: int, table: SoftmaxTable, function: Expr, ends: Sequence[tuple[arb, arb]], shifts: Sequence[float]
    ) -> Any:
        """[bits by which far tokens are below the largest, trees of the cells]."""
        return self._table(wire, "partition")

    def parts(self, name: str, linear: LinearForm, bound: Bound, lower: Floats, upper: Floats) -> Any:
        """Parts of the box for the flow of errors to an output or argument; None to do without."""
        return self._item("parts", name, None)

    def corollary(self, output: int, difference: Expr, region: Region) -> Any:
        """Cuts of the box that bound polynomial − formula."""
        return self._item("corollary", output)

    def inverse(self, output: int) -> Any:
        """Cuts of the box that bound 1/f, for a relative claim."""
        return self._item("inverse", output)

    def grid(self, name: str) -> Any:
        """Cells of one variable between the seams, each with the edges of its pieces: [[low, .., high], ..]."""
        return self._item("grid", name)

    def _table(self, wire: int, part: str) -> Any:
        index = self._item("uses", str(wire))
        return self._within(self._item("tables", index), part, f"tables[{index}]")

    def _item(self, key: str, index: Any, *default: Any) -> Any:
        return self._within(self.data.get(key, {} if default else None), index, key, *default)

    def _within(self, holder: Any, index: Any, name: str, *default: Any) -> Any:
        wanted = dict if isinstance(index, str) else list
        if isinstance(holder, wanted) and type(index) in (str, int):
            if isinstance(holder, dict) and index in holder:
                return holder[index]
            if isinstance(holder, list) and 0 <= index < len(holder):
                return holder[index]
        if default:
            return default[0]
        raise RefutedError(f"evidence.json has no {name} for {str(index)[:40]}")
