"""The card of a model in a notebook: formula, box, claim, size and a small plot."""

from __future__ import annotations

from html import escape

from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.digits import at_most
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.show.drawings import sample_drawing
from transformula.show.figure_style import CARD_WIDTH, PAGE, inline_svg, notebook_css
from transformula.show.figures import error_figure, surface_figure
from transformula.show.page_parts import counted
from transformula.show.slices import default_variables, slice_through
from transformula.show.typeset import typeset_interval, typeset_wrapping

_OUTPUTS = 4
_INTERVALS = 12
_CLASS = "transformula-card"
_STYLE = f"""{notebook_css("." + _CLASS)}
.{_CLASS} {{
  display: flex; flex-wrap: wrap; gap: .4em 1.6em; align-items: center; max-width: 58em; padding: .7em 1em;
  line-height: 1.5; color: var(--ink); background: var(--paper); border: 1px solid var(--rule); border-radius: 8px;
}}
.{_CLASS} .said {{ flex: 1 1 22em; min-width: 0; overflow-wrap: anywhere; }}
.{_CLASS} .formula {{ font-size: 1.25em; }}
.{_CLASS} .box {{ color: var(--soft); margin-bottom: .5em; }}
.{_CLASS} svg {{ display: block; width: 20em; max-width: 100%; height: auto; }}"""


def card(model: Model) -> str:
    """A model as HTML without scripts; a plot that fails is left out.

    Examples
    --------
    >>> import transformula as tf
    >>> "proven" in card(tf.compile("x*y", on="x=0..1, y=0..1"))
    True
    """
    try:
        drawn = _plot(model)
    except Exception:  # a notebook must show its value even if the plot fails
        drawn = ""
    certificate = model.certificate
    where = "at every sample" if isinstance(model.formula, Samples) else "on the whole box"
    where = "for every prompt of the box" if isinstance(model.formula, Prompts) else where
    error = "|error|"
    if (mean := certificate.mean) is not None:
        where = f"over the box; outside seams, {at_most(mean.seams, 2)} of it, |error| ≤ {at_most(mean.outside)}"
        error = "mean |error|"
    facts = [
        f"<b>{model.status}: {error} ≤ {at_most(certificate.bound)}</b> {where} ({escape(model.weights.dtype)})",
        f"approximation {at_most(certificate.approximation)}, rounding {at_most(certificate.rounding)}, "
        f"eps {certificate.eps:.3g}",
        f"{escape(model.construction)}: {counted(model.layers, 'layer')}, {counted(model.heads, 'head')}, "
        f"{counted(model.tokens, 'token')} ({model.memory_tokens:,} of memory), "
        f"{counted(model.parameter_count, 'parameter')}",
    ]
    lines = "".join(f"<div>{fact}</div>" for fact in facts)
    return (
        f'<div class="{_CLASS}"><style>{_STYLE}</style>'
        f'<div class="said"><div class="formula">{_formula(model)}</div>'
        f'<div class="box">{_box(model)}</div>{lines}</div>{drawn}</div>'
    )


def _formula(model: Model) -> str:
    if isinstance(model.formula, Samples):
        return f"{len(model.formula.x):,} memorised samples"
    if isinstance(model.formula, Prompts):
        return escape(model.formula.words)
    outputs = model.formula.outputs
    shown = "".join(f"<div>{typeset_wrapping(expr)}</div>" for expr in outputs[:_OUTPUTS])
    left = len(outputs) - _OUTPUTS
    return shown + (f'<div style="font-size:.8em">and {left} further outputs</div>' if left > 0 else "")


def _box(model: Model) -> str:
    if isinstance(model.formula, Samples):
        inputs, outputs = model.box.dimension, len(model.formula.outputs)
        return f"{counted(inputs, 'input')}, {counted(outputs, 'output')}"
    if isinstance(model.formula, Prompts):
        return escape(model.where)
    shown = [typeset_interval(model.box, k) for k in range(min(model.box.dimension, _INTERVALS))]
    left = model.box.dimension - len(shown)
    return " &ensp; ".join(shown) + (f" &ensp; and {left} further variables" if left else "")


def _plot(model: Model) -> str:
    bound, status = model.pointwise
    if not isinstance(model.formula, Formula):
        figure = sample_drawing(model, PAGE).figure
    elif len(variables := default_variables(model)) == 1:
        figure = error_figure(slice_through(model, 0, variables, points=201), bound, status, PAGE)
    else:
        cut = slice_through(model, 0, variables, points=41)
        figure = surface_figure(cut, bound, status, PAGE, CARD_WIDTH)
    # ids are made of the title, and a notebook shows many cards
    return inline_svg(figure, f"The error against the {model.status} bound, {model.certificate.weights_sha256[:8]}")
