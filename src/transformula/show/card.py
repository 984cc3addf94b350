"""Cards of a notebook: a model with a small plot, a certificate, a verification, a circuit, a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from html import escape
from typing import Any

from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.internals import NamedTrace
from transformula.kernel.arithmetic import at_most
from transformula.kernel.check import Verification
from transformula.kernel.folder.description import Certificate
from transformula.kernel.structures.stored_circuit import Circuit
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.proven import stated
from transformula.show.drawings import sample_drawing
from transformula.show.figure_style import CARD_WIDTH, PAGE, inline_svg, notebook_css
from transformula.show.figures import error_figure, surface_figure
from transformula.show.page_parts import counted, facts
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
.{_CLASS} th {{ text-align: left; padding: 0 1.2em 0 0; font-weight: 400; color: var(--soft); }}
.{_CLASS} td {{ text-align: left; }}
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
    sizes = ((model.layers, "layer"), (model.heads, "head"), (model.memory_tokens, "memory token"))
    said = [
        f"<b>{model.status}: {error} ≤ {at_most(certificate.bound)}</b> {where} ({escape(model.weights.dtype)})",
        f"approximation {at_most(certificate.approximation)}, rounding {at_most(certificate.rounding)}, "
        f"eps {certificate.eps:.3g}",
        f"{escape(model.construction)}: {', '.join(counted(value, noun) for value, noun in sizes)}, "
        f"{counted(model.parameter_count, 'parameter')}",
    ]
    title = "".join(f"<div>{line}</div>" for line in formula_lines(model, _OUTPUTS))
    return _framed(title, box_markup(model, _INTERVALS), "".join(f"<div>{line}</div>" for line in said), drawn)


def _framed(title: str, below: str, lines: str, drawn: str = "") -> str:
    return (
        f'<div class="{_CLASS}"><style>{_STYLE}</style>'
        f'<div class="said"><div class="formula">{title}</div>'
        f'<div class="box">{below}</div>{lines}</div>{drawn}</div>'
    )


def certificate_card(certificate: Certificate) -> str:
    """A claim: its numbers, rounded up, and what it is a claim about."""
    rows = [
        (name.replace("_", " "), at_most(value)) for name, value in stated(certificate).items() if value is not None
    ]
    files = f"weights {certificate.weights_sha256[:12]}, model {certificate.model_sha256[:12]}"
    return _framed(
        "Certificate", f"{escape(certificate.construction)}, {escape(certificate.dtype)}, {files}", facts(rows)
    )


def verification_card(found: Verification) -> str:
    """The checker's answer, with its reasons."""
    rows = [(name.replace("_", " "), at_most(value)) for name, value in stated(found).items() if value is not None]
    reasons = "".join(f"<div>{escape(reason)}</div>" for reason in found.reasons)
    title = "Verified" if found.verified else "Does NOT verify"
    return _framed(title, "the claim was proven again from its files" if found.verified else reasons, facts(rows))


def circuit_card(circuit: Circuit) -> str:
    """A stored circuit: its wires by kind, and the functions of its tables with how often each is read."""
    functions = Counter(str(wire.function) for wire in circuit.wires if wire.function is not None)
    units = sum(wire.place is not None and wire.function is None for wire in circuit.wires)
    below = ", ".join(
        counted(count, noun)
        for count, noun in ((len(circuit.variables), "input"), (sum(functions.values()), "head"), (units, "ReLU"))
    )
    rows = [(function, f"read by {counted(count, 'head')}") for function, count in functions.most_common(_INTERVALS)]
    return _framed(f"Circuit: {counted(len(circuit.outputs), 'output')}", below, facts(rows))


def trace_card(trace: NamedTrace) -> str:
    """The first sample of a trace: the token that each head attended to most, and how much."""
    rows = []
    for b, heads in enumerate(trace.patterns):
        for h in range(min(len(heads), _INTERVALS)):
            (found,) = trace.attended(b, h, most=1)
            rows.append((f"block {b}, head {h}", f"{escape(found[0])}: {found[1]:.3g}"))
    outputs = ", ".join(f"{value:.6g}" for value in trace.outputs[0][:_OUTPUTS])
    sizes = ((len(trace.outputs), "sample"), (len(trace.tokens), "token"), (len(trace.slots), "slot"))
    below = ", ".join(counted(count, noun) for count, noun in sizes)
    return _framed(f"Trace: {outputs}", below, facts(rows[:_INTERVALS]))


#: Class → its card, for `%load_ext transformula`; a model has its own without that.
CARDS: dict[type, Callable[[Any], str]] = {
    Certificate: certificate_card,
    Verification: verification_card,
    Circuit: circuit_card,
    NamedTrace: trace_card,
}


def load_ipython_extension(shell: Any) -> None:
    """Register the cards with a notebook: ``%load_ext transformula``."""
    for kind, show in CARDS.items():
        shell.display_formatter.formatters["text/html"].for_type(kind, show)


def formula_lines(model: Model, most: int) -> list[str]:
    """The target as markup, a line for each output; of many, the first ``most`` and the number of the others."""
    if isinstance(model.formula, Samples):
        outputs = len(model.formula.outputs)
        return [f"{len(model.formula.x):,} memorised samples{f', {outputs} outputs each' if outputs > 1 else ''}"]
    if isinstance(model.formula, Prompts):
        return [escape(model.formula.words)]
    left = len(model.formula.outputs) - most
    shown = [typeset_wrapping(expr) for expr in model.formula.outputs[:most]]
    return shown + ([f'<span class="soft">and {left} further outputs, under the same claim</span>'] if left > 0 else [])


def box_markup(model: Model, most: int) -> str:
    """The intervals of the box; those of a prompt in words."""
    if isinstance(model.formula, Prompts):
        return escape(model.where)
    shown = range(min(model.box.dimension, most))
    if isinstance(model.formula, Samples):
        ends = model.box.floats()
        said = [f"{escape(model.box.variables[k])} from {ends[k][0]:.4g} to {ends[k][1]:.4g}," for k in shown]
    else:
        said = [typeset_interval(model.box, k) for k in shown]
    left = model.box.dimension - len(shown)
    return " &ensp; ".join(said).rstrip(",") + (f" &ensp; and {left} further variables" if left else "")


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
