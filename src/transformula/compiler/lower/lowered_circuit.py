"""A lowered formula: its wires, and queries about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flint import arb

from transformula.compiler.lower.lowered_wires import ARGUMENT, Linear, Norm, Wire, combined
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr


@dataclass
class Circuit:
    """Wires in an order in which they can be computed, and what the outputs are made of."""

    variables: tuple[str, ...]
    wires: list[Wire] = field(default_factory=list)
    outputs: list[Linear] = field(default_factory=list)

    @property
    def layers(self) -> int:
        """Blocks needed."""
        return max((wire.time + 1) // 2 for wire in self.wires)

    @property
    def units(self) -> dict[int, Norm]:
        """The ReLUs of lengths, each with the length that it is part of."""
        return {unit: wire.norm for wire in self.wires if wire.norm is not None for unit in wire.norm.units}

    def in_slots(self, linear: Linear) -> Linear:
        """The same combination with products and norms written out: only wires that have a slot remain."""
        return self.written_out(linear)[0]

    def written_out(self, linear: Linear) -> tuple[Linear, list[tuple[int, Expr]]]:
        """The combination in slots, and the norms met on the way there with their coefficients."""
        norms = []
        while any(self.wires[k].joined is not None for k, _ in linear.terms):
            parts = [(ex.number(1), Linear((), linear.constant, linear.meaning))]
            for k, c in linear.terms:
                joined = self.wires[k].joined
                one = Linear(((k, ex.number(1)),), ex.number(0), self.wires[k].meaning)
                parts.append((c, one if joined is None else joined.sum))
                if self.wires[k].norm is not None:
                    norms.append((k, c))
            linear = combined(parts, linear.meaning)
        return linear, norms

    def evaluate(self, inputs: Sequence[arb]) -> list[arb]:
        """The outputs at a point, wire by wire, as balls."""
        values: list[arb] = []

        def joined(linear: Linear) -> arb:
            return sum((enclose(c) * values[k] for k, c in linear.terms), enclose(linear.constant))

        for k, wire in enumerate(self.wires):
            if wire.product is not None:
                values.append(joined(wire.product.sum))
            elif wire.norm is not None:
                values.append((joined(wire.norm.left) ** 2 + joined(wire.norm.right) ** 2).sqrt())
            elif wire.argument is None:
                values.append(inputs[k])
            elif wire.function is None:
                values.append(joined(wire.argument).max(arb(0)))
            else:
                values.append(enclose(wire.function, {str(ARGUMENT.value): joined(wire.argument)}))
        return [joined(output) for output in self.outputs]

    def needed(self, linear: Linear) -> list[int]:
        """The wires that a combination depends on, in order."""
        found: set[int] = set()
        stack = [k for k, _ in linear.terms]
        while stack:
            k = stack.pop()
            if k in found:
                continue
            found.add(k)
            wire = self.wires[k]
            if wire.joined is not None:
                stack += [i for part in (wire.joined.left, wire.joined.right) for i, _ in part.terms]
                stack += wire.norm.units if wire.norm else []
                stack += [i for i, _ in wire.product.squares] if wire.product else []
            elif wire.argument is not None:
                stack += [i for i, _ in wire.argument.terms]
        return sorted(found)
