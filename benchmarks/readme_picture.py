"""README's picture: a formula, the attention of its Transformer, the answer with its bound, and a conversation.

Side by side in docs/figures/readme.svg, one below the other for phones in readme-phone.svg. Written as SVG by hand: text
stays text, and a curve is one path.

python benchmarks/readme_picture.py
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import transformula as tf
from transformula.export.hf_files import hf_bound
from transformula.kernel.arithmetic import at_most
from transformula.show.figure_style import PRINT
from transformula.show.slices import attention_along, slice_through

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
FORMULA, BOX, EPS = "exp(-x**2)", "x=-2..2", 0.01
COLOURS = ("#2f6db5", "#8a5aa8", "#1a7a48", "#b07d12")
#: What the model is asked in text.
PROMPT = "x=0.5 F="
#: The picture's size, the left end and baseline of the words and of the conversation, and left, top, width and height of
#: the three plots.
LAYOUTS = {
    "readme": ((760, 268), (4, 20), (4, 256), ((232, 36, 222, 162), (532, 36, 222, 92), (532, 146, 222, 52))),
    "readme-phone": (
        (360, 742), (8, 22), (8, 706), ((36, 256, 316, 150), (58, 470, 294, 96), (58, 590, 294, 60))
    ),
}  # fmt: skip


def main() -> None:
    model = tf.compile(FORMULA, on=BOX, eps=EPS, construction="lookup")
    x, (head,) = attention_along(model, "x", points=81)
    cut = slice_through(model, points=81)
    bound = model.certificate.bound
    line = np.abs(np.ravel(model(x[:, None])) - head.contributions.sum(axis=1)).max()
    print(f"{model.memory_tokens} memory tokens, |error| <= {at_most(bound)}, line <= {at_most(line, 1)}")
    answered, proven = _asked(model)
    for name, ((width, height), words, below, plots) in LAYOUTS.items():
        attention, answer, error = (Plot(*place) for place in plots)
        parts = [
            *_say(*words, model, bound),
            *_attention(attention, x, head),
            *_answer(answer, cut),
            *_error(error, cut, bound),
            *_conversation(*below, width, answered, proven),
        ]
        style = f"text{{font:11px system-ui,sans-serif;fill:{PRINT.ink}}}path{{fill:none;stroke-linejoin:round}}"
        whole = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
            f'<style>{style}</style><rect width="100%" height="100%" fill="{PRINT.paper}"/>',
            *parts,
            "</svg>\n",
        ]
        out = FIGURES / f"{name}.svg"
        out.write_text("\n".join(whole), encoding="utf-8")
        print(f"{out.name}: {out.stat().st_size / 1000:.1f} kB")


@dataclass(frozen=True)
class Plot:
    """A place in the picture, with the interval -2..2 across and values up."""

    left: float
    top: float
    width: float
    height: float

    def x(self, value):
        return self.left + (value + 2) / 4 * self.width

    def curve(self, x, y, ends, style, closed=False):
        """A path through the points; closed, down to the lower end."""
        up = self.top + self.height * (ends[1] - y) / (ends[1] - ends[0])
        steps = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(self.x(x), up, strict=True))
        bottom = self.top + self.height
        down = f" {self.left + self.width:.1f},{bottom:.1f} {self.left:.1f},{bottom:.1f}z" if closed else ""
        return f'<path d="M{steps}{down}" style="{style}"/>'

    def frame(self, ticks, ends, label="", across=True):
        """The axes, a line and a number for each tick on the left, and the numbers of x below."""
        bottom, right = self.top + self.height, self.left + self.width
        for value, said in ticks:
            y = self.top + self.height * (ends[1] - value) / (ends[1] - ends[0])
            yield f'<path d="M{self.left:.1f},{y:.1f}H{right:.1f}" stroke="{PRINT.rule}" stroke-width=".6"/>'
            yield text(self.left - 4, y + 3.5, said, size=10, colour=PRINT.soft, anchor="end")
        yield f'<path d="M{self.left:.1f},{self.top:.1f}V{bottom:.1f}H{right:.1f}" stroke="{PRINT.rule}"/>'
        for value in range(-2, 3) if across else ():
            yield text(self.x(value), bottom + 13, str(value).replace("-", "−"), 10, PRINT.soft, "middle")
        if across:
            yield text(self.x(0), bottom + 28, "x", anchor="middle")
        if label:
            yield text(right, self.top - 3, label, 10, PRINT.soft, "end")


def text(x, y, words, size=11, colour="", anchor="", bold=False):
    more = f";fill:{colour}" * bool(colour) + ";font-weight:700" * bold
    middle = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{middle} style="font-size:{size}px{more}">{escape(words)}</text>'


def _say(left, top, model, bound):
    raised = '<tspan dy="-13" font-size="22">−x</tspan><tspan dy="-8" font-size="14">2</tspan>'
    yield text(left, top, "1 · a formula, a box, a tolerance", colour=PRINT.soft)
    yield (
        f'<text x="{left + 2}" y="{top + 54}" style="font:italic 700 38px serif;fill:{PRINT.formula}">e{raised}</text>'
    )
    yield text(left, top + 84, f"x from −2 to 2,  ε = {EPS}", 12)
    yield text(left, top + 112, "one attention layer,", 12)
    yield text(left, top + 129, f"{model.memory_tokens} memory tokens", 12)
    yield text(left, top + 160, f"proven: |error| ≤ {at_most(bound)}", 12, PRINT.bound, bold=True)
    yield text(left, top + 177, "at every point of the box", 12, PRINT.bound)


def _attention(plot, x, head):
    ends = (0, 1.1)
    yield text(plot.left - 28, plot.top - 16, "2 · attention: the weight of each token at x", colour=PRINT.soft)
    yield from plot.frame([(0, "0"), (0.5, "0.5"), (1, "1")], ends)
    order = np.argsort(np.arange(len(x)) @ head.weights / head.weights.sum(axis=0))
    for colour, token in zip(COLOURS, order, strict=False):
        weights = head.weights[:, token]
        yield plot.curve(x, weights, ends, f"fill:{colour};fill-opacity:.13", closed=True)
        yield plot.curve(x, weights, ends, f"stroke:{colour};stroke-width:2")
        peak = int(np.argmax(weights))
        anchor, shift = ("start", 4) if peak < 10 else ("end", -4) if peak > len(x) - 10 else ("middle", 0)
        height = plot.top + plot.height * (1 - weights[peak] / ends[1]) - 5
        value = f"value {head.values[0, token]:+.2f}".replace("-", "−")
        yield text(plot.x(x[peak]) + shift, height, value, 11, colour, anchor, bold=True)


def _answer(plot, cut):
    (x,) = cut.axes
    ends = (-0.05, 1.1)
    yield text(plot.left - 50, plot.top - 16, "3 · the answer, in its proven band", colour=PRINT.soft)
    yield from plot.frame([(0, "0"), (0.5, "0.5"), (1, "1")], ends, across=False)
    yield plot.curve(x, cut.formula, ends, f"stroke:{PRINT.formula};stroke-width:5;stroke-opacity:.35")
    yield plot.curve(x, cut.model, ends, f"stroke:{PRINT.model};stroke-width:1.5")
    yield text(plot.x(2), plot.top + 12, "formula", 11, PRINT.formula, "end", bold=True)
    yield text(plot.x(2), plot.top + 27, "Transformer", 11, PRINT.model, "end", bold=True)


def _error(plot, cut, bound):
    (x,) = cut.axes
    ends = (-1.45 * bound, 1.45 * bound)
    low, high = (plot.top + plot.height * (0.5 - side / 2.9) for side in (-1, 1))
    inside = f'y="{high:.1f}" width="{plot.width:.1f}" height="{low - high:.1f}"'
    yield f'<rect x="{plot.left:.1f}" {inside} fill="{PRINT.bound}" fill-opacity=".09"/>'
    yield from plot.frame([(-bound, f"−{at_most(bound)}"), (0, "0"), (bound, f"+{at_most(bound)}")], ends, "error")
    for y in (low, high):
        yield f'<path d="M{plot.left:.1f},{y:.1f}h{plot.width:.1f}" stroke="{PRINT.bound}" stroke-dasharray="5 3"/>'
    yield plot.curve(x, cut.error, ends, f"stroke:{PRINT.model};stroke-width:1.5")


def _asked(model):
    """What a stock GPT-2 made from the model answers to the prompt, and how far that is from the formula at most."""
    from transformers import pipeline

    with TemporaryDirectory() as where:
        folder = model.to_hf(f"{where}/bell", text=True)
        said = pipeline("text-generation", model=str(folder))(PROMPT)[0]["generated_text"]
        return said.removeprefix(PROMPT), hf_bound(Path(folder))


def _conversation(left, top, width, answered, proven):
    lead, mono = "4 · or in text, with a stock GPT-2:", "font:700 13px ui-monospace,monospace"
    wide = width > 500
    yield text(left, top, lead, colour=PRINT.soft)
    x, y = (left + 188, top) if wide else (left, top + 20)
    given, shown = escape(PROMPT), escape(answered)
    yield f'<text x="{x}" y="{y}" style="{mono}">{given}<tspan style="fill:{PRINT.model}">{shown}</tspan></text>'
    said = f"proven within {at_most(proven)} of the formula" + ", for every prompt in the box" * wide
    yield text(x + 118, y, said, 12, PRINT.bound)


if __name__ == "__main__":
    main()
