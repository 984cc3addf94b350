"""The explorer's point view in a notebook: sliders, the answer with its bound, and the sum that gives the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from transformula.errors import InputError
from transformula.explorer.payloads import attention_payload
from transformula.kernel.arithmetic import at_most
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.show.card import formula_lines
from transformula.show.figure_style import notebook_css
from transformula.show.slices import point_in_box

_STATIC = Path(__file__).parent / "static"


class PointWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """One output of a model at a point; `point` is set by the sliders or from Python, `bars` follow.

    Attributes
    ----------
    point : dict of str to float
        A value for each variable.
    bars : list of dict
        ``label``, ``note`` and ``value`` of each addend; empty for a construction whose answer is not one sum.
    answer, target : float or None
        The model's answer and the formula's value; None where they are not finite.
    """

    _esm = _STATIC / "point_widget.js"
    _css = notebook_css(".transformula-point") + (_STATIC / "point_widget.css").read_text(encoding="utf-8")
    title = traitlets.Unicode().tag(sync=True)
    claim = traitlets.Unicode().tag(sync=True)
    ends: Any = traitlets.List().tag(sync=True)
    point = traitlets.Dict().tag(sync=True)
    bars: Any = traitlets.List().tag(sync=True)
    answer = traitlets.Float(None, allow_none=True).tag(sync=True)
    target = traitlets.Float(None, allow_none=True).tag(sync=True)

    def __init__(self, model: Model, output: int = 0) -> None:
        if not isinstance(model.formula, Formula):
            raise InputError("a widget needs a model of a formula: this one has no point to choose")
        if not 0 <= output < len(model.formula.outputs):
            raise InputError(f"the model has outputs 0 to {len(model.formula.outputs) - 1}, not {output}")
        self._of, self._output = model, output
        bound, status = model.pointwise
        super().__init__(
            title=formula_lines(model, output + 1)[output],
            claim=f"|error| ≤ {at_most(bound)}, {status}",
            ends=[[name, *ends] for name, ends in zip(model.box.variables, model.box.floats(), strict=True)],
            point=point_in_box(model),
        )

    @traitlets.validate("point")
    def _inside(self, proposal: Any) -> dict[str, float]:
        """A slider's end may lie a rounding outside the box; anything further out is refused."""
        point = point_in_box(self._of, proposal["value"])
        for name, low, high in self.ends:
            if not low <= point[name] <= high:
                raise InputError(f"{name} = {point[name]:g} is outside the box, {low:g} to {high:g}")
        return point

    @traitlets.observe("point")
    def _moved(self, _: Any) -> None:
        found = attention_payload(self._of, self.point, self._output, 0)
        with self.hold_sync():  # one message: the bars belong to the answer
            self.answer = found["model"]
            self.target = found["formula"]
            self.bars = found["sum"]["terms"]
