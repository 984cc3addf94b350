"""Meanings of the wires of a stored circuit on the box, and the proof that its outputs are the formula.

Every wire has a normal form in the inputs (`normal_forms`), by substitution. The outputs' forms must be those of
the formula, a product's total must be the product of its factors, and an expression that evidence gives for a
wire must have the wire's form. Signs that the normal forms use are proven first (`derivation_steps`).
"""

from __future__ import annotations

from typing import Any

from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.derivation_steps import Facts, check_equal, defined_nodes
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, LinearForm
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr

#: Wires that a product's factors and squares may read.
MAX_READ = 1_000


class Meanings:
    """Normal forms of wires, of their arguments and of named quantities."""

    def __init__(self, formula: Formula, circuit: Circuit, data: Any, evidence: Evidence, floors: bool = False) -> None:
        self.facts = Facts(formula, data, evidence, floors)
        self.formula = self.facts.formula
        self.region = self.facts.region
        self.known = self.facts.known
        self.algebra, self.circuit = self.facts.algebra, circuit
        self.names: dict[str, QuotientForm] = {}
        self.wires: dict[int, QuotientForm] = {}
        units = {k for wire in circuit.wires if wire.is_norm for k, _ in wire.parts}
        for k in range(len(circuit.wires)):
            if k not in units:  # the ReLUs of a length are read through it only
                self.wires[k] = self.names[f"#w{k}"] = self._wire(k)
        for o, (linear, expr) in enumerate(zip(circuit.outputs, self.formula.outputs, strict=True)):
            check_equal(o, expr, self.linear(linear), self.algebra)

    def linear(self, linear: LinearForm) -> QuotientForm:
        """The form of a linear form of wires."""
        forms = [self.algebra.of(linear.constant)]
        for k, c in linear.terms:
            if k not in self.wires:
                raise RefutedError(f"wire {k} is read outside the length that it belongs to")
            forms.append(self.wires[k] * self.algebra.of(c))
        return self.algebra.sum(forms)

    def _wire(self, k: int) -> QuotientForm:
        wire, algebra = self.circuit.wires[k], self.algebra
        if not wire.arguments:
            return algebra.of(ex.variable(self.circuit.variables[k]))
        sides = [self.linear(argument) for argument in wire.arguments]
        if wire.is_norm:
            return algebra.root(sides[0] * sides[0] + sides[1] * sides[1])
        if wire.total is not None:
            self._check_product(k)
            return sides[0] * sides[1]
        if wire.function is None:
            return algebra.relu(sides[0])
        return algebra.of(wire.function, dict(zip(wire.names, sides, strict=True)))

    def _check_product(self, k: int) -> None:
        """A product's total, its squares taken apart, is left·right as a polynomial in the wires it reads.

        Not only on the box: then errors of those wires reach the total as they reach left·right, and the
        squares add nothing but what they err themselves (`error_flow`).
        """
        wire = self.circuit.wires[k]
        assert wire.total is not None
        factors = dict(wire.parts)
        if len(factors) != len(wire.parts):
            raise RefutedError(f"wire {k} is a product with a square that counts twice")
        squares = [self.circuit.wires[i] for i in factors]
        if any(square.function != SQUARE for square in squares):
            raise RefutedError(f"wire {k} is a product of something else than squares")
        forms = [*wire.arguments, *(square.arguments[0] for square in squares)]
        read = {i for form in (wire.total, *forms) for i, _ in form.terms} - set(factors)
        if len(read) > MAX_READ:
            raise RefutedError(f"wire {k} is a product that reads over {MAX_READ} wires")
        algebra = Algebra([f"#w{i}" for i in sorted(read)])

        def form(linear: LinearForm, names: dict[int, QuotientForm]) -> QuotientForm:
            parts = [names[i] * algebra.of(c) for i, c in linear.terms]
            return algebra.sum([algebra.of(linear.constant), *parts])

        names = {i: algebra.of(ex.variable(f"#w{i}")) for i in read}
        if any(i in factors for argument in forms for i, _ in argument.terms):
            raise RefutedError(f"wire {k} is a product that reads its own squares")
        inside = {i: form(square.arguments[0], names) for i, square in zip(factors, squares, strict=True)}
        total = form(wire.total, names | {i: u * u for i, u in inside.items()})
        left, right = (form(argument, names) for argument in wire.arguments)
        shares = {i: c.number for i, c in wire.total.terms if i in factors}
        if not algebra.same(total, left * right) or shares != factors:
            raise RefutedError(f"wire {k} is not the product that the circuit says it is")

    def argument_sign(self, k: int) -> int:
        """The known sign of a wire's argument: 2, 1, 0, -1 or -2."""
        if k not in self.wires:
            return 0
        return self.algebra.sign(self.linear(self.circuit.wires[k].arguments[0]))

    def defined_nodes(self, k: int) -> frozenset[Expr]:
        """The nodes of a table's function that are defined at all arguments that are meant, because of signs."""
        wire = self.circuit.wires[k]
        assert wire.function is not None
        return defined_nodes(wire.function, self.algebra, {"u": self.linear(wire.arguments[0])})

    def define(self, name: str, expr: Expr) -> None:
        """Give a quantity its form."""
        self.names[name] = self.algebra.of(expr, self.names)

    def check_same(self, k: int, of: str, expr: Expr) -> None:
        """Refuse an expression that is not seen to be a wire's argument (u) or value (w)."""
        form = self.wires[k] if of == "w" else self.linear(self.circuit.wires[k].arguments[0])
        if not self.algebra.same(form, self.algebra.of(expr, self.names)):
            raise RefutedError(f"an expression in evidence.json is not what wire {k} means: {str(expr)[:80]}")
