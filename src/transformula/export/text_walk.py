"""The kernel's walk over a compiled circuit, as the blocks of a text model compute it.

The rule for softmax models (`kernel.rules.softmax_rule`) bounds |T_w − f| and |computed − T_w| for blocks without
LayerNorm. Here the same walk runs over the same evidence, with these changes, all of which only enlarge its bounds:

* *LayerNorm* subtracts a computed mean m, |m| ≤ μ, from every slot, and the row that reads also reads −Σw of a slot
  that holds 0: a form Σ w_i z_i is read as Σ w_i fl(z_i − m) + (−Σw)(−m). In real numbers m cancels. Each term meets
  two more roundings, and the terms with m at most k + 8 in a row of k weights: they add γ_{k+8} 4 S μ for rows with
  Σ|w| ≤ S, as a term of size 4 S μ and coefficient 0. Nothing is nonnegative for sure any more, nor off by a relative
  error only.
* *Keys and values* are read in the same way. A slope, an offset or a value, a row of one weight 1, is off by a relative
  γ_2 and by κ = 2 γ_9 μ; the gate, which is 0 for a head's own tokens, by g = 2 γ_{k+8} G μ, G its sum of weights.
  With |arguments| ≤ R a score is then off by at most a = 2 κ d (R + 1) + 2 g besides its relative errors, and the value
  by κ, which is added.
* *A coarser format*, of unit roundoff c·u instead of u, covers the rest. A product slope·argument meets at most 3 + 2d
  roundings and an offset 5 + 2d, where the rule counts 2 and 1 for one axis, 2d + 2 and 2d + 1 for d: cu ≥ 8u + κ is
  enough. Sums over M tokens and their quotients meet M + 12, where it counts at least M, and c ≥ 16. exp is within 4
  units in the last place, and attention may be computed in b blocks of keys that are rescaled, each time by an
  exponential and a product: with a that is at most (1 + b) 10u + 3a, which `covered` compares with the rule's 8cu.
* *Foreign tokens*: the anchor, and copies of the data token, as many as the longest prompt has characters.
* *Inputs* are off by what reading them costs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb, fmpq

from transformula.export.norm_rounding import SlippedWalk, StretchedEvidence
from transformula.kernel.circuit.error_flow import Fuzz
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.intervals import UndefinedError, corner_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.description import EVIDENCE_FILE, parse_json
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.rounding.formats import FORMATS, FloatFormat
from transformula.kernel.rules.rule_table import checked_target
from transformula.kernel.structures.network import ONE, HeadTable, Network, Term, WireForm, read_network
from transformula.kernel.structures.stored_circuit import CircuitReader
from transformula.model import Model

FORM = FORMATS["float64"]
#: Smallest number of keys that a fused attention kernel takes at a time.
KERNEL_BLOCK = 64
#: Factors c of the coarser format, as binary logarithms.
COARSER = range(4, 25)


@dataclass(frozen=True)
class Surroundings:
    """Bounds of what the blocks of a text model add.

    ``mean`` is μ; ``row`` bounds Σ|w| and ``weights`` the number of weights of a row that queries, hidden units and
    answers read; ``gate`` is g; ``errors`` are those of the inputs. ``tokens`` is the longest sequence, and ``answer``
    how many more roundings an output meets where it is read.
    """

    mean: arb
    row: arb
    weights: int
    gate: arb
    errors: tuple[arb, ...]
    tokens: int
    answer: int

    @property
    def lost(self) -> arb:
        """κ."""
        return 2 * FORM.gamma(9) * self.mean


#: The model's own blocks, for a first look at the ranges.
NO_SURROUNDINGS = Surroundings(arb(0), arb(0), 0, arb(0), (), 0, 0)


class TextWalk(SlippedWalk):
    """The walk with the changes above; ``bits`` is the binary logarithm of c."""

    def __init__(self, model: Model, around: Surroundings, bits: int) -> None:
        weights, stated = unpack(model.packed)
        formula = checked_target(weights, stated)
        evidence = StretchedEvidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
        self.around, self.bits = around, bits
        network = read_network(weights, self._behind_norm) if around.tokens else read_network(weights)
        circuit = CircuitReader(formula.box.variables).read(stated.circuit)
        meanings = Meanings(formula, circuit, stated.circuit, evidence)
        form = FloatFormat("float64", FORM.digits - bits, FORM.largest_exponent)
        super().__init__(form, self._surrounded(network), circuit, meanings, evidence, sharp=False)
        for k, wrong in enumerate(around.errors):
            fuzz = Fuzz(0.0, round_up(wrong))
            self.values[k] = replace(self.values[k], rounding=wrong, rounded=fuzz, nonnegative=False, relative=None)
        if around.tokens:
            self.slips = dict.fromkeys((wire.place for wire in network.wires), around.lost)
        self.run()

    def _surrounded(self, network: Network) -> Network:
        """The network with the characters of a prompt among its tokens."""
        if not self.around.tokens:
            return network
        tables = {id(wire.table): self._joined(wire.table) for wire in network.wires if wire.table}
        wires = (replace(wire, table=tables[id(wire.table)]) if wire.table else wire for wire in network.wires)
        return replace(network, wires=tuple(wires))

    def _behind_norm(self, form: WireForm, kind: str, place: tuple[int, ...]) -> WireForm:
        """A form as it is read behind LayerNorm."""
        more = 2 + (self.around.answer if kind == "output" else 0)
        terms = {k: Term(t.coefficient, t.size, t.roundings + more) for k, t in form.terms.items()}
        own = terms.get(ONE, Term(fmpq(0), fmpq(0), 0))
        size = own.size + fmpq(*round_up(4 * self.around.row * self.around.mean).as_integer_ratio())
        terms[ONE] = Term(own.coefficient, size, max(own.roundings, self.around.weights + 8))
        return WireForm(terms, form.underflow + 8)

    def _joined(self, table: HeadTable) -> HeadTable:
        """A table among the characters of a prompt, which are copies of the data token, and the anchor."""
        count, axes = self.around.tokens, table.slopes.shape[1]

        def more(old: Any, anchor: Any) -> Any:  # the data token is the first foreign one
            return np.concatenate([old, np.repeat(old[:1], count, axis=0), anchor])

        zeros = np.zeros((1, axes))
        return replace(
            table,
            foreign_slopes=more(table.foreign_slopes, zeros),
            foreign_offsets=more(table.foreign_offsets, zeros),
            foreign_values=more(table.foreign_values, np.zeros(1)),
            gates=more(table.gates, table.gates[:1]),
        )

    def form_size(self, form: WireForm) -> arb:
        """Σ|term| of a form, as computed."""
        return sum((arb(t.size) * self.reach(self.index[i]) for i, t in form.terms.items()), arb(0)).upper()

    @property
    def covered(self) -> bool:
        """Whether the coarser format covers what the walk does not count."""
        u, lost = FORM.unit_roundoff, self.around.lost
        axes = max((len(w.arguments) for w in self.network.wires if w.table), default=1)
        forms = [form for wire in self.network.wires if wire.table for form in wire.arguments]
        reach = max((round_up(self.form_size(form)) for form in forms), default=0.0)
        blocks = 1 + -(-self.around.tokens // KERNEL_BLOCK)
        score = 2 * lost * axes * (arb(reach) + 1) + 2 * self.around.gate
        coarse = u * 2**self.bits
        return bool(lost + 8 * u <= coarse) and bool((1 + blocks) * 10 * u + 3 * score <= 8 * coarse)


def answer_ends(model: Model) -> list[tuple[arb, arb]]:
    """Proven ends of each output's formula on the box."""
    walk = TextWalk(model, NO_SURROUNDINGS, 0)
    formula = walk.meanings.formula
    box = Region.of_box(formula.box).ends
    found = []
    for o, expr in enumerate(formula.outputs):
        argument = walk.argument(walk.circuit.outputs[o], walk.network.outputs[o])
        low, high = argument.ends[0] - argument.error, argument.ends[1] + argument.error
        with suppress(UndefinedError):
            direct = corner_range(expr, box)
            low, high = low.max(arb(direct[0])), high.min(arb(direct[1]))
        found.append((low.lower(), high.upper()))
    return found
