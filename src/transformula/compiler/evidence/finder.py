"""Evidence that is searched for when the kernel asks, and recorded for the folder.

The kernel runs the same rule twice: once over this object, which cuts where it has to, and once over the
written evidence, which is what the certificate rests on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.budget import SECOND, checkpoint, left, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.compiler.evidence import grid_pieces as grids
from transformula.compiler.evidence import table_pieces as tables
from transformula.compiler.evidence.definedness import find_defined
from transformula.compiler.evidence.range_search import WireSearch, inside_domain
from transformula.compiler.evidence.range_trees import Bound, find_parts, find_sign_tree
from transformula.compiler.lower.rewrites import steep_places
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.evidence import Evidence, Meant, RangeClaim
from transformula.kernel.isolation import CPU_SECONDS
from transformula.kernel.structures.stored_circuit import SQUARE, LinearForm, argument_names
from transformula.kernel.syntax.expression import Expr, to_text
from transformula.kernel.tables.table_error import SoftmaxTable

if TYPE_CHECKING:
    from transformula.kernel.derivations.floors import Floors

Floats = NDArray[np.float64]
Ends = Sequence[tuple[arb, arb]]
#: The square's table reaches a little beyond −1..1, so that ranges of a power of two fit with errors.
SQUARE_MARGIN = 1e-3
SQUARE_ENDS = (-1.0 - SQUARE_MARGIN, 1.0 + SQUARE_MARGIN)
#: Microseconds of work of one check, at most: a checker's process may use ten seconds, on a slower machine too.
_MAX_CHECK = 0.8 * CPU_SECONDS * SECOND
#: Work on one wire of a circuit beside its table: its meaning, its argument and its rounding, in microseconds.
_WIRE = 500.0
#: Key of the parts that go with floors: no text of an expression.
FLOORS = "#floors"
_STORED = ("pieces", "cells", "slopes", "softmax", "partition")


class Finder(Evidence):
    """Searches, and records what was found in ``data``.

    Parameters
    ----------
    wires : WireSearch, optional
        Finds expressions that bound the wires of a circuit.
    singular : wires whose function has an unbounded slope on its range: their arguments' errors are followed.
    follow : whether to follow errors to the outputs (of no use in a single layer).
    trees : trees of signs that were searched for already, by their texts.
    far_bits : how far below the largest a sharp cell's other tokens are, in bits.
    target : a bound of a grid that is good enough where no tight one is found.
    terms : the size of the circuit that errors are followed through (`costs.terms_of`).
    """

    def __init__(
        self,
        wires: WireSearch | None = None,
        singular: frozenset[int] = frozenset(),
        follow: bool = True,
        trees: Mapping[str, list[int]] | None = None,
        far_bits: int = 40,
        target: float | None = None,
        terms: int = 0,
    ) -> None:
        super().__init__({})
        self.terms, self.check_work = terms, 0.0
        self.most_work = min(left(), max(policy.USUAL_SEARCH, policy.SEARCH_PART * left()))
        self.trees, self.far_bits, self.target = trees or {}, far_bits, target
        self.written: dict[str, Any] = {"defined": [], "signs": [], "ranges": {}, "tables": [], "uses": {}}
        self.written |= {"parts": {}}
        self.data = self.written
        self.wires, self.singular, self.follow = wires, singular, follow
        self._found: list[tuple[SoftmaxTable, Expr, dict[str, Any]]] = []

    def defined(self, output: int, expr: Expr, region: Region, known: frozenset[Expr]) -> Any:
        """Search for the parts on which a formula is defined."""
        checkpoint()
        found = find_defined(expr, region, known)
        self._count(costs.claim(expr, found))
        self.written["defined"].append(found)
        return found

    def sign(self, index: int, expr: Expr, region: Region, known: frozenset[Expr]) -> Any:
        """Search for the parts that show a sign."""
        checkpoint()
        found = self.trees.get(to_text(expr))
        if found is None:
            found = find_sign_tree(expr, region, known)
        self._count(costs.sign(expr, found))
        self.written["signs"].append(found)
        return found

    def apart(self, floors: Floors, known: frozenset[Expr]) -> Any:
        """The parts that were found with the floors."""
        found = self.trees[FLOORS]
        self._count(sum(costs.claim(expr, found) for expr in (*floors.above, *floors.before, *floors.outputs)))
        self.written["apart"] = [found]
        return found

    def ranges(
        self, wire: int, of: str, found: tuple[float, float], region: Region, known: frozenset[Expr]
    ) -> list[RangeClaim]:
        """Search for expressions that bound a wire better than the wires it reads."""
        checkpoint()
        claims = [] if self.wires is None else self.wires.claims(wire, of, found, region, known)
        self._count(_WIRE)
        if claims:
            assert self.wires is not None
            self._count(sum(costs.claim(self.wires.meanings[wire][0], claim.cut) for claim in claims))
            self.written["ranges"][str(wire)] = [list(claim) for claim in claims]
        return claims

    def pieces(
        self,
        wire: int,
        table: SoftmaxTable,
        function: Expr,
        names: Sequence[str],
        ends: Ends,
        meant: Meant | None = None,
    ) -> Any:
        """Search for the pieces of a table, unless they are known from an earlier wire."""
        checkpoint()
        if len(names) > 1:
            item = self._item_of(wire, table, function, None)
            if "pieces" not in item:
                item["pieces"] = grids.find_pieces(table, function, names, ends, self.target)
                leaves = sum(tree.count(-1) for tree in item["pieces"]["trees"])
                self._count(costs.grid(table, function, leaves))
            return item["pieces"]
        reach = _roomy((float(ends[0][0]), float(ends[0][1])), meant, steep_places(function))
        low, high = inside_domain(function, reach)
        wide = SQUARE_ENDS if function == SQUARE and _covers(SQUARE_ENDS, (low, high)) else (low, high)
        item = self._item_of(wire, table, function, wide)
        before = len(item.get("pieces", ()))
        item["reach"] = _hull(reach, item.get("reach", reach))
        try:
            if "search" not in item:
                item["search"] = tables.PieceSearch(table, function, *item["ends"])
            item["pieces"] = item["search"].refine(low, high)
            failed = None if math.isfinite(item["search"].worst) else f"{function} could not be bounded by pieces"
        except NotProvenError as error:
            failed = str(error)
        if failed is not None:  # only where it is meant
            if meant is None or meant.exact[0] is None or "exact" in item:
                raise NotProvenError(failed)
            item["exact"], item["ends"] = True, meant.floats
            low, high = meant.floats
            item["search"] = tables.PieceSearch(table, function, low, high, meant.exact)
            item["pieces"] = item["search"].refine(low, high)
        self._count((len(item["pieces"]) - before) * costs.table_piece(table, function))
        return item["pieces"]

    def cells(self, wire: int, function: Expr, low: float, high: float) -> Any:
        """Search for cells of a function."""
        item = self._own(wire)
        if "cells" not in item:
            low, high = item.get("ends", (low, high))
            item["cells"] = tables.find_function_cells(function, low, high)
            self._count(len(item["cells"]) * costs.cell(function))
        return item["cells"]

    def slopes(
        self, wire: int, table: SoftmaxTable, function: Expr | None, low: float, high: float, enough: float
    ) -> Any:
        """Search for pieces that bound a table's slope."""
        item = self._own(wire)
        if "slopes" not in item or not _covers(_outer(item["slopes"]), (low, high)):
            low, high = _hull((low, high), item.get("reach", (low, high)))
            item["slopes"] = tables.find_slopes(table, function, low, high, enough)
            self._count(len(item["slopes"]) * costs.slope_piece(table, function))
        return item["slopes"]

    def softmax(self, wire: int, table: SoftmaxTable, ends: Ends) -> Any:
        """Search for intervals that bound the rounding of softmax."""
        item = self._own(wire)
        wanted = float(ends[0][0]), float(ends[0][1])
        if "softmax" not in item or not ("ends" not in item or _covers(_outer(item["softmax"][0]), wanted)):
            if "ends" in item:
                low, high = _hull(wanted, item["reach"])
                ends = [(arb(low), arb(high))]
            item["softmax"] = grids.find_softmax(table, ends)
            self._count(costs.softmax(table, item["softmax"]))
        if "ends" in item:
            item["softmax"] = [tables.with_ends(item["softmax"][0], *wanted)]
        return item["softmax"]

    def partition(self, wire: int, table: SoftmaxTable, function: Expr, ends: Ends, shifts: Sequence[float]) -> Any:
        """Search for the subdivision of sharp cells."""
        item = self._item_of(wire, table, function, None)
        if "partition" not in item:
            self._count(costs.sharp_cells(table))
            names = argument_names(len(ends))
            trees = grids.find_partition_cells(table, function, names, ends, self.far_bits, shifts)
            item["partition"] = [self.far_bits, trees]
            leaves = table.values.size if trees is None else sum(tree.count(-1) for tree in trees)
            self._count(costs.models(function, leaves))
        return item["partition"]

    def corollary(self, output: int, difference: Expr, region: Region) -> Any:
        """Search for the pieces that bound polynomial − formula."""
        zeros = (np.zeros(1),) * len(region.names)
        table = SoftmaxTable(zeros, zeros, np.zeros((1,) * len(region.names)))
        ends = [(arb(low), arb(high)) for low, high in zip(region.lower, region.upper, strict=True)]
        if len(ends) == 1:
            found: Any = tables.find_pieces(table, difference, ends[0])
            self._count(len(found) * costs.table_piece(table, difference))
        else:
            found = grids.find_pieces(table, difference, region.names, ends, self.target)
            leaves = sum(tree.count(-1) for tree in found["trees"])
            self._count(costs.grid(table, difference, leaves))
        self.written.setdefault("corollary", []).append(found)
        return found

    def parts(self, name: str, linear: LinearForm, bound: Bound, lower: Floats, upper: Floats) -> Any:
        """Search for parts of the box on which errors are followed."""
        wanted = self.follow if name.startswith("o") else int(name[1:]) in self.singular
        if not wanted or not linear.terms:
            return None
        if name not in self.written["parts"]:
            found = find_parts(bound, lower, upper, self.terms)
            self._count(costs.flow(self.terms, found.count(-1)))
            self.written["parts"][name] = found
        return self.written["parts"][name]

    def evidence(self) -> dict[str, Any]:
        """The evidence found, in its stored form."""
        kept = [{k: v for k, v in item.items() if k in _STORED} for item in self.written["tables"]]
        return {**self.written, "tables": kept}

    def _count(self, work: float) -> None:
        """Count the kernel's work on an answer: the same rule evaluates it once more over the stored evidence."""
        self.check_work += work
        if self.check_work > _MAX_CHECK:
            raise RefutedError("to check this model would take too much work")
        spend(2 * work)

    def _own(self, wire: int) -> dict[str, Any]:
        item: dict[str, Any] = self.written["tables"][self.written["uses"][str(wire)]]
        return item

    def _item_of(
        self, wire: int, table: SoftmaxTable, function: Expr, ends: tuple[float, float] | None
    ) -> dict[str, Any]:
        """The entry for a table, a function and a range; an earlier one that covers it serves again."""
        for other, same, item in self._found:
            if other is table and same == function and (ends is None or _covers(item["ends"], ends)):
                break
        else:
            item = {} if ends is None else {"ends": ends}
            self._found.append((table, function, item))
            self.written["tables"].append(item)
        index = next(i for i, known in enumerate(self.written["tables"]) if known is item)
        self.written["uses"][str(wire)] = index
        return item


def _roomy(reach: tuple[float, float], meant: Meant | None, steep: set[Fraction]) -> tuple[float, float]:
    """A range with room on both sides: evidence that is found later changes errors, and with them the range.

    None beyond a place where the function is steep, as a cube root is at 0: no table goes on there.
    """
    low, high = reach if meant is None else meant.floats
    by = policy.ERROR_ROOM * max(low - reach[0], reach[1] - high) + 4 * math.ulp(max(map(abs, reach)))
    least = max((float(place) for place in steep if place <= reach[0]), default=-math.inf)
    most = min((float(place) for place in steep if place >= reach[1]), default=math.inf)
    return max(reach[0] - by, least), min(reach[1] + by, most)


def _hull(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), max(a[1], b[1])


def _outer(edges: Sequence[float]) -> tuple[float, float]:
    return edges[0], edges[-1]


def _covers(outer: tuple[float, float], inner: tuple[float, float]) -> bool:
    """Whether an interval contains another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]
