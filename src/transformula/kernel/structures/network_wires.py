"""Wires as the weights hold them, and how often the numbers of a linear form are rounded.

A product with a power of two is exact, with another float it is rounded once, and with a float that stands
for a rational three times: once itself, and twice for the stored number, which is within 1.01u of the
rational (`formats.check_stored`). A sum of n numbers, in any order, rounds each at most n − 1 times
(Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1). A product that underflows is off by
at most the format's smallest number; sums do not underflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flint import fmpq

from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.folder.weights import Matrix
from transformula.kernel.rounding.formats import FloatFormat
from transformula.kernel.structures.stored_circuit import Place

#: The wire that is always 1.
ONE = -1


@dataclass(frozen=True)
class Term:
    """coefficient · wire; ``size`` bounds |coefficient| of every partial sum, ``roundings`` counts them."""

    coefficient: fmpq
    size: fmpq
    roundings: int


@dataclass(frozen=True)
class WireForm:
    """Σ terms; ``underflow`` is how many smallest numbers the computed form may be off by."""

    terms: Mapping[int, Term] = field(default_factory=dict)
    underflow: fmpq = field(default_factory=fmpq)

    def times(self, factor: fmpq, roundings: int) -> WireForm:
        """The form times a stored number."""
        size = abs(factor)
        terms = {k: Term(t.coefficient * factor, t.size * size, t.roundings + roundings) for k, t in self.terms.items()}
        lost = fmpq((self.underflow * size).ceil())  # whole numbers: sums of long rationals are longer still
        return WireForm(terms, lost + (1 if roundings or size < 1 else 0))

    @property
    def constant(self) -> fmpq | None:
        """Its value, if no wire but ONE occurs."""
        if set(self.terms) <= {ONE}:
            return self.terms[ONE].coefficient if self.terms else fmpq(0)
        return None


#: The form of an empty slot.
ZERO = WireForm()


def total(forms: Iterable[WireForm]) -> WireForm:
    """The computed sum of computed forms; forms without terms are zero and cost nothing."""
    parts = [form for form in forms if form.terms]
    if not parts:
        return ZERO
    adds = max(len(parts) - 1, 0)
    terms: dict[int, Term] = {}
    for form in parts:
        for k, t in form.terms.items():
            other = terms.get(k, Term(fmpq(0), fmpq(0), 0))
            roundings = max(other.roundings, t.roundings + adds)
            terms[k] = Term(other.coefficient + t.coefficient, other.size + t.size, roundings)
    return WireForm(terms, sum((form.underflow for form in parts), fmpq(0)))


def wire_form(wire: int) -> WireForm:
    """One wire as it is."""
    return WireForm({wire: Term(fmpq(1), fmpq(1), 0)})


def roundings(value: fmpq, form: FloatFormat) -> int:
    """How often a product with this stored number is rounded."""
    if not form.holds(value):
        return 3
    p, q = abs(int(value.p)), int(value.q)
    return 0 if p & (p - 1) == 0 and q & (q - 1) == 0 else 1


@dataclass(frozen=True, eq=False)
class HeadTable:
    """A head's tokens: slopes and offsets (M, axes), values (M,); and all other tokens, with their gates."""

    slopes: Floats
    offsets: Floats
    values: Floats
    foreign_slopes: Floats
    foreign_offsets: Floats
    foreign_values: Floats
    gates: Floats


@dataclass(frozen=True)
class NetworkWire:
    """A table read at its arguments, or (without a table) ReLU of its one argument."""

    place: Place
    arguments: tuple[WireForm, ...]
    table: HeadTable | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """What the weights compute: wire k is an input for k < inputs, then ``wires`` in order.

    ``held`` is all that slots and hidden units ever hold, read or not: an infinity there would spread to others,
    as a dense product multiplies it by zero. If ``repeated`` the positions of a sequence all compute the same from
    their own inputs, and inputs and outputs are those of one position.
    """

    inputs: int
    wires: tuple[NetworkWire, ...]
    outputs: tuple[WireForm, ...]
    held: tuple[WireForm, ...]
    positions: int
    repeated: bool
    blocks: int


def rows_of(matrix: Matrix) -> list[list[tuple[int, fmpq]]]:
    """The entries of every row: (column, rational) pairs."""
    rows: list[list[tuple[int, fmpq]]] = [[] for _ in range(matrix.shape[0])]
    for row, column, value in matrix.entries():
        rows[row].append((column, value))
    return rows


def column_of(matrix: Matrix) -> dict[int, fmpq]:
    """The entries of a matrix of one column, by row."""
    return {row: value for row, _, value in matrix.entries()}
