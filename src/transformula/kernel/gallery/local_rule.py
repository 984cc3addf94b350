"""Proof rule for local models joined by a softmax partition of unity (after Shi and Liao 2026).

One head has sharp cells (`partition`), and its tokens hold several numbers c_j = (c_j1, .., c_jn). At x it reads
c(x) = Σ_j w_j(x) c_j, w_j >= 0, Σ w_j = 1. All else that the weights compute, as a function of x *and* c, is a circuit
for

    P(x, c) = q_0(x) + Σ_i q_i(x) c_i,        so that        P(x, c(x)) = Σ_j w_j(x) p_j(x),   p_j(x) = P(x, c_j).

*Theorem.* Let near be the largest |p_j(x) − f(x)| over all tokens j and all x in their widened cells, Q >= |p_j| on the
box for every token of the memory, and 2^-B + η the most weight outside the cells (η: tokens of other heads). Then

    |P(x, c(x)) − f(x)| <= near + (2^-B + η)(2Q + near),

since x lies in the cell of the token that leads there, so that |f(x)| <= Q + near. If p_j is f's Taylor polynomial of
degree m at the middle of a cell of width h, near = O(h^(m+1)). Taylor models of p_j − f bound it on each cell.

*Circuit.* `softmax_rule` proves it with the columns c_i as inputs, anywhere between the least and the largest number
that any token of the memory holds: it errs by at most e, for every x and c.

*Rounding.* A head's weights are computed once, for all its columns. With exact sums they are other weights w', still
nonnegative and with sum 1: the head reads a c' between the same numbers. As in `partition`,

    |P(x, c') − P(x, c)| = |Σ (w'_j − w_j)(p_j − T)| <= P/(1 − P) Σ w_j |p_j − T| <= 2P/(1 − P) times the bound above,

T = P(x, c), and 2ηQ for tokens of other heads. Sums and quotient are off by what `cell_error` says, and what is left of
other heads' tokens in floats by what `head_proofs` says, column by column; from inputs x and c' that are off by so much
the circuit's rounding is counted. Its error e occurs at c and at c': 2e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.circuit.error_flow import Fuzz
from transformula.kernel.circuit.head_proofs import SILENT, as_table, leak, score_error
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import enclose, round_up
from transformula.kernel.enclosures.expression_ranges import model_of, model_range, models_on
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.enclosures.regions import BallEnds, check_defined
from transformula.kernel.enclosures.taylor_models import Floats, boxes_of
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.description import Proof
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.functions.elementary_functions import dyadic_above, dyadic_below
from transformula.kernel.rounding.formats import FORMATS, FloatFormat, check_memory
from transformula.kernel.rules.softmax_rule import BITS, NormReading, Walk
from transformula.kernel.structures.network import ONE, HeadTable, Network, WireForm, read_network, wire_form
from transformula.kernel.structures.stored_circuit import CircuitReader
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.cell_error import blur_factor, far_of, sum_error, used_cells

#: By the number of axes: orders of the Taylor models, and parts of a side on which they are bounded.
ORDERS, PARTS = {1: 12, 2: 8, 3: 6, 4: 5}, {1: 4, 2: 2, 3: 2, 4: 1}
MAX_COLUMNS = 1_000


def prove_local(
    weights: Weights, formula: Formula, circuit: Any, evidence: Evidence, norm: NormReading | None = None
) -> Proof:
    """Prove local models, or raise `RefutedError` or `NotProvenError` with the place where it fails.

    ``norm`` as in `softmax_rule.NormReading`.
    """
    stated = circuit.get("local") if isinstance(circuit, dict) else None
    if not isinstance(stated, dict) or type(stated.get("bits")) is not int or type(stated.get("head")) is not int:
        raise RefutedError("model.json does not state the head and the bits of local models")
    if len(weights.data_tokens) != 1:
        raise RefutedError("local models are not those of a sequence")
    network = read_network(weights)
    form, read = (FORMATS[weights.dtype], network) if norm is None else (norm.form, read_network(weights, norm.reading))
    rest, columns = _taken_apart(network, read, stated["head"])
    terms = [_terms(texts, len(columns.tables), formula.box) for texts in _lists(stated.get("models"), formula)]
    with precision(BITS):
        held = [np.append(t.values, t.foreign_values) for t in columns.tables]
        both = with_columns(formula.box, [(np.min(v), np.max(v)) for v in held], terms)
        wires = CircuitReader(both.box.variables).read(circuit)
        if len(wires.outputs) != len(rest.outputs) or len(terms) != len(rest.outputs):
            raise RefutedError("the circuit has another number of outputs than the formula or the weights")
        check_memory(weights)
        walk = Walk(form, rest, wires, Meanings(both, wires, circuit, evidence), evidence, False)
        cells = _Cells(columns, formula.box, stated["bits"], walk.form)
        for i, wrong in enumerate(cells.wrong):
            k = formula.box.dimension + i
            off = Fuzz(0.0, round_up(wrong))  # of the column as a whole: neither its sign nor a part of itself is known
            walk.values[k] = replace(walk.values[k], rounding=wrong, rounded=off, nonnegative=False, relative=None)
        walk.run()
        found = []
        for o, (expr, local) in enumerate(zip(formula.outputs, terms, strict=True)):
            error, rounding = map(arb, walk.output(o))
            bound, moved = cells.error(expr, local)
            found.append((round_up(bound + error), round_up(rounding + moved + 2 * error)))
    approximation, rounding_bound = (float(np.max([one[side] for one in found])) for side in (0, 1))
    return Proof(approximation, rounding_bound)


class _Columns(NamedTuple):
    """The head's axes, as numbers of inputs, and a table for each of its columns."""

    axes: tuple[int, ...]
    tables: tuple[HeadTable, ...]


def _taken_apart(network: Network, read: Network, head: int) -> tuple[Network, _Columns]:
    """The network, as it is ``read``, with the columns of a head of its first block as further inputs; and the head."""
    own = [i for i, w in enumerate(network.wires) if w.table is not None and w.place[:2] == (0, head)]
    if not 0 < len(own) <= MAX_COLUMNS:
        raise RefutedError("the head of the local models is not there")
    arguments = network.wires[own[0]].arguments
    axes = [next(iter(form.terms), ONE) for form in arguments]
    straight = all(0 <= k < network.inputs and form == wire_form(k) for k, form in zip(axes, arguments, strict=True))
    if not straight or len(set(axes)) != len(axes) or len(axes) not in ORDERS:
        raise RefutedError("the head of the local models does not read a few inputs, each on one axis")
    taken = set(own)
    others = [i for i in range(len(network.wires)) if i not in taken]
    old = [*range(network.inputs), *(network.inputs + i for i in (*own, *others))]
    number = {ONE: ONE} | {wire: k for k, wire in enumerate(old)}

    known: dict[int, WireForm] = {}

    def moved(form: WireForm) -> WireForm:
        if id(form) not in known:  # the columns of a head share what it asks for
            known[id(form)] = WireForm({number[k]: term for k, term in form.terms.items()}, form.underflow)
        return known[id(form)]

    wires = [replace(read.wires[i], arguments=tuple(map(moved, read.wires[i].arguments))) for i in others]
    outputs, held = tuple(map(moved, read.outputs)), tuple(map(moved, read.held))
    rest = replace(
        read, inputs=network.inputs + len(own), wires=tuple(wires), outputs=outputs, held=held,
        blocks=max(network.blocks, 2),  # a table's argument never is an input as it is given
    )  # fmt: skip
    return rest, _Columns(tuple(axes), tuple(t for i in own if (t := network.wires[i].table) is not None))


def _lists(stated: Any, formula: Formula) -> list[Any]:
    if not isinstance(stated, list) or len(stated) != len(formula.outputs):
        raise RefutedError("model.json does not state a local model for each output")
    return stated


def _terms(texts: Any, columns: int, box: Box) -> list[Expr]:
    """q_0, .., q_n."""
    if not isinstance(texts, list) or len(texts) != columns + 1 or not all(isinstance(t, str) for t in texts):
        raise RefutedError("a local model has another number of terms than its head has columns")
    return [parse(text, box.variables) for text in texts]


def with_columns(box: Box, ends: Sequence[tuple[float, float]], terms: Sequence[Sequence[Expr]]) -> Formula:
    """P for each output, on the box of the inputs and of the columns, whose ends are given."""
    names = column_names(len(ends))
    lower, upper = ([ex.number(Fraction(float(pair[side]))) for pair in ends] for side in (0, 1))
    both = Box((*box.variables, *names), (*box.lower, *lower), (*box.upper, *upper))
    factors = [ex.number(1), *map(ex.variable, names)]
    outputs = [ex.add(*(ex.mul(q, c) for q, c in zip(local, factors, strict=True))) for local in terms]
    return Formula(tuple(outputs), both)


def column_names(count: int) -> list[str]:
    """Names of the columns in the circuit."""
    return [f"local{i + 1}" for i in range(count)]


class _Cells:
    """The widened cells, and what the head's columns are off by in floats (``wrong``)."""

    def __init__(self, columns: _Columns, box: Box, bits: int, form: FloatFormat) -> None:
        head = columns.tables[0]
        self.box = box
        self.axes = columns.axes
        self.names = [box.variables[k] for k in columns.axes]
        self.ends: list[BallEnds] = [(enclose(box.lower[k]), enclose(box.upper[k])) for k in columns.axes]
        tokens = len(head.values)
        numbered = as_table(replace(head, values=np.arange(float(tokens))))
        self.lower, self.upper, rows = used_cells(numbered, self.ends, far_of(tokens, bits))
        self.rows = rows.astype(np.intp)
        self.held = np.stack([t.values for t in columns.tables], axis=1)
        self.sizes = [arb(float(np.max(np.abs(np.append(t.values, t.foreign_values))))) for t in columns.tables]
        off = [round_up(box.magnitude(k) * form.unit_roundoff + form.tiny) for k in columns.axes]
        reach = [round_up(box.magnitude(k) + w) for k, w in zip(columns.axes, off, strict=True)]
        lost = [leak(table, reach, form).computed for table in columns.tables]  # refuses unless they are silent
        sums = [sum_error(form, tokens, size, len(self.axes)) for size in self.sizes]
        self.wrong = [(a + b).upper() for a, b in zip(sums, lost, strict=True)]
        self.outside = (len(head.gates) * arb(-SILENT).exp()).upper()
        self.far = (arb(2) ** -bits + self.outside).upper()
        self.blur = blur_factor(numbered, self.ends, score_error(form, numbered, reach, off), form)

    def error(self, function: Expr, local: Sequence[Expr]) -> tuple[arb, arb]:
        """Bounds of |P(x, c(x)) − f(x)|, and of how far other weights of the head move P."""
        if unknown := frozenset().union(function.names, *(q.names for q in local)) - set(self.names):
            raise RefutedError(f"the head of the local models does not read {', '.join(sorted(unknown))}")
        check_defined(function, self.names, self.ends, self.lower, self.upper)
        near = arb(local_error(function, local, self.names, self.lower, self.upper, self.held[self.rows]))
        factors = [arb(1), *self.sizes]
        most = sum((c * self._size(q) for q, c in zip(local, factors, strict=True)), arb(0))
        bound = (near + self.far * (2 * most + near)).upper()
        if not bound.is_finite():
            raise NotProvenError(f"{function} could not be bounded on the cells of local models", place=str(function))
        return bound, (2 * self.blur * bound + 2 * self.outside * most).upper()

    def _size(self, term: Expr) -> arb:
        """A bound of |q| on the box."""
        ends = {n: (dyadic_below(a), dyadic_above(b)) for n, (a, b) in zip(self.names, self.ends, strict=True)}
        found = try_range(term, ends)
        if found is None:
            raise NotProvenError(f"{term} may be undefined or unbounded on the box", place=str(term))
        return arb(abs(found[0])).max(arb(abs(found[1])))


def local_error(
    function: Expr, local: Sequence[Expr], names: Sequence[str], lower: Floats, upper: Floats, held: Floats
) -> float:
    """The largest |p_j − f| over cells (d, cells) where f is defined; ``held`` has their c_j, cells × columns."""
    order, errors = ORDERS[len(names)], []
    for part, model in models_on(function, names, lower, upper, order):
        boxes, parts = boxes_of(lower[:, part], upper[:, part]), PARTS[len(names)]
        factors = np.vstack([np.ones(len(held[part])), held[part].T])
        with np.errstate(all="ignore"):
            for q, c in zip(local, factors, strict=True):
                model = model - model_of(q, names, *boxes, order).times_constant(c)
        errors.append(np.max(np.abs(model_range(model, parts))))
    return float(np.max(errors))
