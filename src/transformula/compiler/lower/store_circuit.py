"""Circuits as they are stored in model.json: wires with exact constants and their places in the weights.

A lowered circuit (`lowered_circuit`) says what each wire means; a layout decides which head or hidden unit computes
it, and by which factors its argument and value are multiplied. In the stored circuit a wire stands for what its slot
holds, so these factors become part of the linear forms: if a head reads s·u and its slot holds h·f(u), the stored wire
is the table of h·f(u/s) at s·u, and readers take 1/h times the wire.

One-layer models are stored as the parts of their formula (`additive.decompose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from transformula.compiler.lower.additive import AbsTerm, AffineForm, Part, decompose
from transformula.compiler.lower.lowered_circuit import ARGUMENT, ONE, ZERO, collected
from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, LinearForm, Wire, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, to_text

Place = Sequence[int]
#: (s, h): the head reads s · argument, the slot holds h · value.
Scale = tuple[Fraction, Fraction]
_UNSCALED: Scale = Fraction(1), Fraction(1)


def store_circuit(
    circuit: Circuit, places: Mapping[int, Place], scales: Mapping[int, Scale] | None = None
) -> dict[str, Any]:
    """The circuit's "wires" and "outputs" in model.json.

    Parameters
    ----------
    circuit : Circuit
        The lowered formula.
    places : mapping
        For every wire with a slot, by its index in the circuit: [block, head, column] for a table,
        [block, unit, position] for a ReLU.
    scales : mapping, optional
        For table wires: the factors of argument and value; 1 for a wire that is missing here.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> from transformula.compiler.lower.lowered_circuit import Guide
    >>> from transformula.compiler.lower.lowering import build_circuit
    >>> circuit = build_circuit([parse("pi*sin(x/3) + 1")], ("x",), Guide()).circuit
    >>> store_circuit(circuit, {1: [0, 0, 0]})["outputs"]
    [{'wires': [[1, 'pi']], 'plus': '1'}]
    """
    return _Store(circuit, places, scales or {}).store()


class _Store:
    """Writes down the wires of a circuit."""

    def __init__(self, circuit: Circuit, places: Mapping[int, Place], scales: Mapping[int, Scale]) -> None:
        self.circuit, self.places, self.scales = circuit, places, scales

    def store(self) -> dict[str, Any]:
        """Wires and outputs; the ReLUs of a length are stored with it."""
        made = [(k, w) for k, w in enumerate(self.circuit.wires) if w.arguments and w.inside is None]
        return {
            "wires": [self._wire(k, wire) for k, wire in made],
            "outputs": [self._linear(output) for output in self.circuit.outputs],
        }

    def _wire(self, k: int, wire: Wire) -> dict[str, Any]:
        scale, held = self.scales.get(k, _UNSCALED)
        arguments = [self._linear(argument, scale) for argument in wire.arguments]
        if wire.is_norm:
            return {"norm": arguments, "folds": [self._place(unit) for unit, _ in wire.parts]}
        if wire.total is not None:
            squares = [[i, str(factor / self._held(i))] for i, factor in wire.parts]
            return {"product": arguments, "sum": self._linear(wire.total), "squares": squares}
        if wire.function is None:
            return {"relu": arguments[0], "from": self._place(k)}
        return {"table": to_text(_scaled(wire.function, scale, held)), "of": arguments, "from": self._place(k)}

    def _place(self, k: int) -> list[int]:
        return [int(v) for v in self.places[k]]

    def _held(self, k: int) -> Fraction:
        return self.scales.get(k, _UNSCALED)[1]

    def _linear(self, linear: LinearForm, factor: Fraction = Fraction(1)) -> dict[str, Any]:
        terms = [(k, ex.mul(ex.number(factor / self._held(k)), c)) for k, c in linear.terms]
        return stored_linear(terms, ex.mul(ex.number(factor), linear.constant))


def _scaled(function: Expr, scale: Fraction, held: Fraction) -> Expr:
    """held · f(u / scale)."""
    if function == SQUARE:
        return ex.mul(ex.number(held / scale**2), SQUARE)
    inner = substitute(function, {ARGUMENT: ex.mul(ex.number(1 / scale), ARGUMENT)})
    return ex.mul(ex.number(held), inner)


def store_one_layer(
    variables: Sequence[str],
    outputs: Sequence[Expr],
    linears: Sequence[Sequence[Fraction | float]],
    shape: tuple[int, int] | None = None,
    limit: Fraction | float = 0,
    relu_limits: Sequence[Fraction | float] = (),
) -> dict[str, Any]:
    """The "wires" and "outputs" of a one-layer model, laid out as `layout.assemble` does.

    Heads follow the parts of the outputs in order, one column each; hidden units follow the absolute values in order,
    and in a sequence there are two more for every output: the row selector and a constant.

    Parameters
    ----------
    variables, outputs
        The formula, extended.
    linears
        For every output and part: the slope a of the linear function that the residual stream carries beside
        the table, which then holds part(u) − a·u. Only a part of one form may have one.
    shape
        Rows × columns of a sequence; None for a function.
    limit, relu_limits
        In a sequence: R of the row selector, and Z of every ReLU, as stored.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> stored = store_one_layer(("x",), [parse("sin(x) + pi*abs(x - 1)")], [[Fraction(1, 2)]])
    >>> [wire.get("table", wire.get("relu")) for wire in stored["wires"]]
    ['sin(u) - 1/2*u', {'wires': [[0, '1']], 'plus': '-1'}]
    >>> stored["outputs"]
    [{'wires': [[0, '-pi + 1/2'], [1, '1'], [2, '2*pi']], 'plus': 'pi'}]
    """
    splits = [decompose(expr, variables) for expr in outputs]
    wires: list[dict[str, Any]] = []
    sums: list[_Sum] = []
    for split, slopes in zip(splits, linears, strict=True):
        total = [(ONE, _affine(split.affine))]
        for part, slope in zip(split.parts, slopes, strict=True):
            total.append((ONE, single(len(variables) + len(wires))))
            total.append((ex.number(Fraction(slope)), _affine(AffineForm(part.forms[0], ZERO))))
            wires.append(_table(part, Fraction(slope), [0, len(wires), 0]))
        for absolute in split.abs_terms:  # |z| = 2 ReLU(z) − z
            total.append((ex.neg(absolute.coefficient), _affine(absolute.inside)))
        sums.append(total)
    units = [(o, absolute) for o, split in enumerate(splits) for absolute in split.abs_terms]
    if shape is not None:
        sums = _selected(len(variables), wires, units, sums, shape, Fraction(limit), relu_limits)
    for unit, (o, absolute) in enumerate(units if shape is None else ()):
        sums[o].append((ex.mul(ex.number(2), absolute.coefficient), single(len(variables) + len(wires))))
        wires.append({"relu": _stored([(ONE, _affine(absolute.inside))]), "from": [0, unit, 0]})
    return {"wires": wires, "outputs": [_stored(total) for total in sums]}


def _selected(
    inputs: int,
    wires: list[dict[str, Any]],
    units: Sequence[tuple[int, AbsTerm]],
    sums: Sequence[_Sum],
    shape: tuple[int, int],
    limit: Fraction,
    relu_limits: Sequence[Fraction | float],
) -> list[_Sum]:
    """Outputs of a sequence: at position q a unit of row p reads z if p = q, and z − Z ≤ 0 otherwise."""
    columns = shape[1]
    rows: list[_Sum] = [[] for _ in sums]
    known: dict[str, int] = {}

    def placed(unit: int, position: int, inside: _Sum) -> LinearForm:
        """The wire of a unit; positions that compute the same share it."""
        stored = _stored(inside)
        key = f"{unit} {stored}"
        if key not in known:
            known[key] = inputs + len(wires)
            wires.append({"relu": stored, "from": [0, unit, position]})
        return single(known[key])

    for q in range(shape[0]):
        for unit, ((o, absolute), reach) in enumerate(zip(units, relu_limits, strict=True)):
            p, c = divmod(o, columns)
            inside = [(ONE, _affine(absolute.inside)), (ex.number(0 if p == q else -Fraction(reach)), _UNIT)]
            rows[q * columns + c].append((ex.mul(ex.number(2), absolute.coefficient), placed(unit, q, inside)))
        for o, total in enumerate(sums):
            p, c = divmod(o, columns)
            row, own = rows[q * columns + c], p == q
            inside = [*total, (ex.number(limit if own else -limit), _UNIT)]
            if own:
                row.append((ex.number(-limit), _UNIT))
            if _stored(inside)["wires"]:
                row.append((ONE, placed(len(units) + 2 * o, q, inside)))
            elif own:  # a constant output: the unit holds a constant, which the limit makes positive
                row += inside
    return rows


def _table(part: Part, slope: Fraction, place: list[int]) -> dict[str, Any]:
    """The table of part − slope·u, in u for one axis and in u1, u2, .. for several."""
    if slope and len(part.forms) > 1:
        raise ValueError("only a part of one linear form has a slope beside its table")
    function = part.expr
    if len(part.forms) == 1:
        function = substitute(function, {ex.variable("u1"): ARGUMENT})
        function = ex.add(function, ex.mul(ex.number(-slope), ARGUMENT)) if slope else function
    arguments = [stored_linear([(k, ex.number(v)) for k, v in enumerate(form)], ex.number(0)) for form in part.forms]
    return {"table": to_text(function), "of": arguments, "from": place}


#: Factors and linear forms of stored wires that are added up, and the form that is 1.
_Sum = list[tuple[Expr, LinearForm]]
_UNIT = LinearForm((), ONE)


def _affine(affine: AffineForm) -> LinearForm:
    """A form of the inputs, which are the first wires."""
    return LinearForm(tuple((k, ex.number(v)) for k, v in enumerate(affine.form) if v), affine.constant)


def _stored(parts: _Sum) -> dict[str, Any]:
    """A sum of linear forms for model.json."""
    total = LinearForm.sum(parts)
    return stored_linear(total.terms, total.constant)


def stored_linear(terms: Iterable[tuple[int, Expr]], constant: Expr) -> dict[str, Any]:
    """A linear form as in model.json; coefficients that cancel are left out."""
    tidy = [(k, collected(c)) for k, c in terms]
    return {
        "wires": [[k, to_text(c)] for k, c in sorted(tidy, key=lambda term: term[0]) if c.number != 0],
        "plus": to_text(collected(constant)),
    }
