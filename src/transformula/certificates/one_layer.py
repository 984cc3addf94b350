"""What one layer computes, read exactly, and how it is matched with the formula.

For output o the network is Σ tables + affine(x) + Σ c·ReLU(affine(x)), all with rational coefficients
read from the weights; `decompose` writes the formula as affine + Σ c·|affine| + Σ parts. ReLU(z) = (z +
|z|)/2 makes both sides sums of the same kinds, so the error is at most ::

    Σ_forms sup |tables on those forms − parts on those forms|  +  leak  +  sup |leftover affine and kinks|

where the first term is left to a proof rule for tables, and the last is exactly zero for rational
formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from flint import arb, fmpq, fmpq_mat

from transformula.certificates.proof import RefutedError
from transformula.formulas import expression as ex
from transformula.formulas.additive import Affine, Decomposition, Form, Kink, decompose
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import enclose, to_fmpq
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.transformers.one_layer import NotOneLayerError, TableHead, read_heads
from transformula.transformers.weights import Weights

Forms = tuple[Form, ...]


@dataclass(frozen=True)
class Group:
    """All tables and all summands that depend on the same linear forms, for one output.

    ``tables`` are (head, column of its values); ``expr`` is what they must add up to, in u1, u2, ..;
    the network adds Σ slopes_k u_k + constant beside the tables.
    """

    forms: Forms
    tables: tuple[tuple[int, int], ...]
    expr: Expr
    slopes: tuple[fmpq, ...]
    constant: fmpq


@dataclass(frozen=True)
class OutputPlan:
    """One output: its groups, and a bound of what is left over outside them."""

    groups: tuple[Group, ...]
    leftover: arb


@dataclass
class LinearMap:
    """Σ over slots: what a data token's slot or an output is made of, exactly.

    ``tables`` maps (head, column) to a coefficient, ``kinks`` lists coefficient·ReLU(form·x + constant).
    """

    width: int
    form: list[fmpq] = field(default_factory=list)
    constant: fmpq = field(default_factory=fmpq)
    tables: dict[tuple[int, int], fmpq] = field(default_factory=dict)
    kinks: list[tuple[fmpq, tuple[fmpq, ...], fmpq]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.form = self.form or [fmpq(0)] * self.width

    def add(self, other: LinearMap, factor: fmpq) -> None:
        """self += factor · other."""
        self.form = [a + factor * b for a, b in zip(self.form, other.form, strict=True)]
        self.constant += factor * other.constant
        for key, value in other.tables.items():
            self.tables[key] = self.tables.get(key, fmpq(0)) + factor * value
        self.kinks += [(factor * c, form, k) for c, form, k in other.kinks]


@dataclass(frozen=True)
class OneLayer:
    """The whole network, read."""

    heads: tuple[TableHead, ...]
    outputs: tuple[LinearMap, ...]


def read_one_layer(
    weights: Weights, box: Box, table_reach: Sequence[Sequence[arb]] | None = None
) -> OneLayer:
    """Read tables, feed-forward layer and readout; hidden units that read tables must not bend.

    ``table_reach[h][column]`` bounds |table| on the box; None takes the largest stored value, which
    always holds because softmax weights are positive and add up to one.
    """
    try:
        heads = read_heads(weights)
    except NotOneLayerError as reason:
        raise RefutedError(f"the weights are not a one-layer table Transformer: {reason}") from None
    if table_reach is None:
        table_reach = [[_largest(head, c) for c in range(len(head.slots))] for head in heads]
    streams = {int(p): _stream(weights, heads, int(p)) for p in weights.data_tokens}
    layer = weights.blocks[0].feed_forward
    if layer is not None:
        streams = {p: _feed_forward(weights, s, box, table_reach) for p, s in streams.items()}
    outputs = [LinearMap(len(weights.inputs)) for _ in range(weights.outputs)]
    for row, _, value in weights.bias.entries():
        outputs[row].constant += value
    for row, column, value in weights.readout.entries():
        token, slot = divmod(column, weights.width)
        if token not in streams:
            raise RefutedError("the readout uses a memory token")
        outputs[row].add(streams[token][slot], value)
    return OneLayer(heads, tuple(outputs))


def _largest(head: TableHead, column: int) -> arb:
    return arb(float(abs(head.values[:, column]).max()))


def _stream(weights: Weights, heads: Sequence[TableHead], token: int) -> list[LinearMap]:
    """A data token after attention, slot by slot."""
    width = len(weights.inputs)
    slots = [LinearMap(width) for _ in weights.slots]
    for row, column, value in weights.embedding.entries():
        if row // weights.width == token:
            slots[row % weights.width].form[column] += value
    for row, slot, value in weights.memory.entries():
        if row == token:
            slots[slot].constant += value
    for h, head in enumerate(heads):
        for column, slot in enumerate(head.slots):
            slots[slot].tables[h, column] = fmpq(1)
    return slots


def _feed_forward(
    weights: Weights, slots: list[LinearMap], box: Box, table_reach: Sequence[Sequence[arb]]
) -> list[LinearMap]:
    layer = weights.blocks[0].feed_forward
    assert layer is not None
    width = len(weights.inputs)
    inside = [LinearMap(width) for _ in range(layer.hidden.shape[0])]
    for unit, slot, value in layer.hidden.entries():
        inside[unit].add(slots[slot], value)
    for unit, _, value in layer.hidden_bias.entries():
        inside[unit].constant += value
    hidden = [_relu(unit, box, table_reach) for unit in inside]
    result = [LinearMap(width) for _ in slots]
    for new, old in zip(result, slots, strict=True):
        new.add(old, fmpq(1))
    for slot, unit, value in layer.output.entries():
        result[slot].add(hidden[unit], value)
    for slot, _, value in layer.output_bias.entries():
        result[slot].constant += value
    return result


def _relu(inside: LinearMap, box: Box, table_reach: Sequence[Sequence[arb]]) -> LinearMap:
    """ReLU of something that is proven not to change sign, or that depends on no table."""
    value = affine_range(inside.form, inside.constant, box)
    spread = sum((abs(arb(c)) * table_reach[h][k] for (h, k), c in inside.tables.items()), arb(0))
    if value - spread >= 0:
        return inside
    if value + spread <= 0:
        return LinearMap(inside.width)
    if inside.tables:
        raise RefutedError("a hidden unit bends where it reads a table")
    bent = LinearMap(inside.width)
    bent.kinks.append((fmpq(1), tuple(inside.form), inside.constant))
    return bent


def affine_range(form: Sequence[fmpq], constant: fmpq | arb, box: Box) -> arb:
    """A ball that contains form·x + constant for every x in the box."""
    total = arb(constant)
    for index, value in enumerate(form):
        if value != 0:
            total += box.interval(index) * arb(value)
    return total


def plan_outputs(network: OneLayer, formula: Formula) -> list[OutputPlan]:
    """Match every output with its formula."""
    return [
        _plan(network, output, decompose(expr, formula.box.variables), formula.box)
        for output, expr in zip(network.outputs, formula.outputs, strict=True)
    ]


def _plan(network: OneLayer, output: LinearMap, target: Decomposition, box: Box) -> OutputPlan:
    tables: dict[Forms, list[tuple[int, int]]] = {}
    for (h, column), coefficient in output.tables.items():
        if coefficient != 1:
            raise RefutedError("the readout scales a table")
        tables.setdefault(_head_forms(network.heads[h], output.width), []).append((h, column))
    exprs = {part.forms: part.expr for part in target.parts}
    # one-form groups first: a linear function beside the tables is theirs
    everything = sorted(dict.fromkeys([*tables, *exprs]), key=len)
    bends, slack = _match_kinks(output, target, box)
    form, constant = _left_affine(output, target.affine, bends)
    slopes, rest = _distribute(form, everything)
    leftover = slack + abs(affine_range(rest, fmpq(0), box)).upper()
    # a constant can be told apart from no table, so it goes to the first group if there is one
    own = constant if isinstance(constant, fmpq) else fmpq(0)
    if not everything:
        leftover += abs(arb(constant))
    elif not isinstance(constant, fmpq):
        leftover += abs(constant)
    groups = [
        Group(
            forms,
            tuple(tables.get(forms, ())),
            exprs.get(forms, ex.number(0)),
            slopes[forms],
            own if k == 0 else fmpq(0),
        )
        for k, forms in enumerate(everything)
    ]
    return OutputPlan(tuple(groups), leftover.upper())


def _head_forms(head: TableHead, width: int) -> Forms:
    return tuple(
        tuple(Fraction(int(form[i].p), int(form[i].q)) if i in form else Fraction(0) for i in range(width))
        for form in head.forms
    )


@dataclass
class _Bends:
    """Affine part that turning ReLU into |·| leaves on the network's side."""

    form: list[fmpq]
    constant: fmpq


def _match_kinks(output: LinearMap, target: Decomposition, box: Box) -> tuple[_Bends, arb]:
    """Pair the network's ReLUs with the formula's |·|; what differs is bounded over the box."""
    half = fmpq(1, 2)
    bends = _Bends([fmpq(0)] * output.width, fmpq(0))
    ours: list[tuple[arb, list[arb], arb]] = []
    exact: list[tuple[fmpq, tuple[fmpq, ...], fmpq]] = []
    for c, form, constant in output.kinks:
        bends.form = [a + half * c * b for a, b in zip(bends.form, form, strict=True)]
        bends.constant += half * c * constant
        ours.append((arb(half * c), [arb(v) for v in form], arb(constant)))
        exact.append((half * c, tuple(form), constant))
    slack = arb(0)
    for kink in target.kinks:
        same = _rational_kink(kink)
        if same is not None and same in exact:
            ours.pop(exact.index(same))
            exact.remove(same)
            continue
        inside = [arb(to_fmpq(v)) for v in kink.inside.form]
        wanted = enclose(kink.coefficient), inside, enclose(kink.inside.constant)
        options = [(_kink_gap(wanted, unit, box), k) for k, unit in enumerate(ours)]
        alone = _kink_size(wanted, box)
        best = min(options, default=None, key=lambda option: float(option[0].upper()))
        if best is not None and best[0].upper() < alone.upper():
            slack += best[0]
            ours.pop(best[1])
            exact.pop(best[1])
        else:
            slack += alone
    for unit in ours:
        slack += _kink_size(unit, box)
    return bends, slack.upper()


def _rational_kink(kink: Kink) -> tuple[fmpq, tuple[fmpq, ...], fmpq] | None:
    """The kink in rationals, to be found again exactly; None if a constant is irrational."""
    c, constant = kink.coefficient.number, kink.inside.constant.number
    if c is None or constant is None:
        return None
    return to_fmpq(c), tuple(to_fmpq(v) for v in kink.inside.form), to_fmpq(constant)


def _kink_size(kink: tuple[arb, list[arb], arb], box: Box) -> arb:
    c, form, constant = kink
    return (abs(c) * abs(_ball_range(form, constant, box))).upper()


def _kink_gap(wanted: tuple[arb, list[arb], arb], unit: tuple[arb, list[arb], arb], box: Box) -> arb:
    """|c|a| − c'|a'|| ≤ |c − c'| |a| + |c'| |a ∓ a'|, whichever sign is better."""
    (c, form, constant), (d, other, shift) = wanted, unit
    gaps = []
    for sign in (1, -1):
        difference = [a - sign * b for a, b in zip(form, other, strict=True)]
        gaps.append(abs(_ball_range(difference, constant - sign * shift, box)).upper())
    closest = gaps[0].min(gaps[1])
    gap = abs(c - d) * abs(_ball_range(form, constant, box)) + abs(d) * closest
    return gap.upper()


def _ball_range(form: Sequence[arb], constant: arb, box: Box) -> arb:
    total = constant
    for index, value in enumerate(form):
        total += box.interval(index) * value
    return total


def _left_affine(output: LinearMap, target: Affine, bends: _Bends) -> tuple[list[fmpq], fmpq | arb]:
    form = [a + b - to_fmpq(c) for a, b, c in zip(output.form, bends.form, target.form, strict=True)]
    have = output.constant + bends.constant
    if target.constant.number is not None:
        return form, have - to_fmpq(target.constant.number)
    return form, arb(have) - enclose(target.constant)


def _distribute(
    form: Sequence[fmpq], groups: Sequence[Forms]
) -> tuple[Mapping[Forms, tuple[fmpq, ...]], list[fmpq]]:
    """Write a linear form as Σ slopes·forms of the groups, as far as their span reaches."""
    columns = [(g, k, f) for g in groups for k, f in enumerate(g)]
    slopes = {g: [fmpq(0)] * len(g) for g in groups}
    rest = list(form)
    if columns and any(v != 0 for v in form):
        system = fmpq_mat(len(form), len(columns) + 1)
        for j, (_, _, f) in enumerate(columns):
            for i, entry in enumerate(f):
                system[i, j] = to_fmpq(entry)
        for i, value in enumerate(form):
            system[i, len(columns)] = value
        reduced, rank = system.rref()
        leads = [next(j for j in range(len(columns) + 1) if reduced[i, j] != 0) for i in range(rank)]
        if len(columns) not in leads:
            for i, j in enumerate(leads):
                g, k, f = columns[j]
                slopes[g][k] = reduced[i, len(columns)]
                rest = [r - slopes[g][k] * to_fmpq(v) for r, v in zip(rest, f, strict=True)]
    return {g: tuple(v) for g, v in slopes.items()}, rest
