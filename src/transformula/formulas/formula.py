"""A formula: one or more expressions in the variables of a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformula.errors import BoxError, FormulaError
from transformula.formulas.boxes import Box
from transformula.formulas.expression import Expr, variables_of
from transformula.formulas.parsing import parse
from transformula.formulas.removable import without_removable

MAX_OUTPUTS = 1_000


@dataclass(frozen=True)
class Formula:
    """Expressions on a box: outputs × inputs.

    Examples
    --------
    >>> formula = Formula.of(["x + y", "x*y"], "x=0..1, y=0..1")
    >>> str(formula)
    'x + y; x*y'
    """

    outputs: tuple[Expr, ...]
    box: Box

    @classmethod
    def of(cls, given: str | Sequence[str], on: object) -> Formula:
        """Parse one formula or several on a box; every variable must be used, and declared."""
        box = Box.of(on)  # type: ignore[arg-type]
        if not isinstance(given, (str, Sequence)):
            raise FormulaError(f"a formula must be text or a list of texts, not {type(given).__name__}")
        texts = [given] if isinstance(given, str) else list(given)
        if not texts:
            raise FormulaError("there is no formula to compile")
        if len(texts) > MAX_OUTPUTS:
            raise FormulaError(f"{len(texts)} formulas at once; at most {MAX_OUTPUTS}")
        names = frozenset(box.variables)
        parsed = (text if isinstance(text, Expr) else parse(text, box.variables) for text in texts)
        outputs = tuple(without_removable(expr, box) for expr in parsed)
        used = frozenset().union(*(variables_of(e) for e in outputs))
        if unknown := sorted(used - names):
            raise BoxError(f"the box has no interval for {', '.join(unknown)}")
        if unused := [name for name in box.variables if name not in used]:
            raise BoxError(f"the formula does not use {', '.join(unused)}: leave it out of the box")
        return cls(outputs, box)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each output as text."""
        return tuple(str(e) for e in self.outputs)

    def __str__(self) -> str:
        return "; ".join(self.texts)
