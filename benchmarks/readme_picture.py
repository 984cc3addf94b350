"""README's picture: a formula, the attention of its Transformer, and the answer with its bound.

Side by side in docs/figures/readme.svg, one below the other for phones in readme-phone.svg.

python benchmarks/readme_picture.py
"""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import transformula as tf
from transformula.kernel.digits import at_most
from transformula.show.figure_style import PRINT, picture, styled
from transformula.show.slices import attention_along, slice_through

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
FORMULA, BOX, EPS = "exp(-x**2)", "x=-2..2", 0.01
COLOURS = ("#2f6db5", "#8a5aa8", "#1a7a48", "#b07d12")


def main() -> None:
    model = tf.compile(FORMULA, on=BOX, eps=EPS, construction="lookup")
    x, (head,) = attention_along(model, "x", points=161)
    cut = slice_through(model, points=161)
    line = np.abs(np.ravel(model(x[:, None])) - head.contributions.sum(axis=1)).max()
    bound = model.certificate.bound
    print(f"{model.memory_tokens} memory tokens, |error| <= {at_most(bound)}, line <= {at_most(line, 1)}")
    for name, size, shape, ratios in (
        ("readme", (10, 3.5), (1, 3), {"width_ratios": (0.8, 1.1, 1.25)}),
        ("readme-phone", (4.6, 8.8), (3, 1), {"height_ratios": (1.05, 1, 1.2)}),
    ):
        with styled(PRINT):
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            said, middle, answer = figure.subfigures(*shape, **ratios)
            _say(said, model, bound)
            _attention(middle.subplots(), x, head)
            _answer(answer.subplots(2, 1, sharex=True, height_ratios=(3, 2)), cut, bound)
        out = FIGURES / f"{name}.svg"
        out.write_bytes(picture(figure, "svg"))
        print(f"{out.name}: {out.stat().st_size // 1000} kB")


def _say(panel, model, bound) -> None:
    axes = panel.subplots()
    axes.axis("off")
    lines = [
        (0.93, "1  a formula, a box, a tolerance", 10, PRINT.soft, "normal"),
        (0.72, "$e^{-x^2}$", 30, PRINT.formula, "bold"),
        (0.55, "x from −2 to 2,  ε = 0.01", 10.5, PRINT.ink, "normal"),
        (0.36, "one attention layer,", 10.5, PRINT.ink, "normal"),
        (0.27, f"{model.memory_tokens} memory tokens", 10.5, PRINT.ink, "normal"),
        (0.09, f"proven: |error| ≤ {at_most(bound)}", 10.5, PRINT.bound, "bold"),
        (0.0, "at every point of the box", 10.5, PRINT.bound, "normal"),
    ]
    for height, text, size, colour, weight in lines:
        axes.text(0.02, height, text, fontsize=size, color=colour, fontweight=weight, transform=axes.transAxes)


def _attention(axes, x, head) -> None:
    order = np.argsort(np.arange(len(x)) @ head.weights / head.weights.sum(axis=0))
    for colour, token in zip(COLOURS, order, strict=False):
        weights = head.weights[:, token]
        axes.fill_between(x, weights, color=colour, alpha=0.13, linewidth=0)
        axes.plot(x, weights, color=colour, linewidth=2)
        peak = int(np.argmax(weights))
        side = "left" if peak < 20 else "right" if peak > len(x) - 20 else "center"
        axes.annotate(
            f"value {head.values[0, token]:+.2f}".replace("-", "−"), (x[peak], weights[peak]), (3 if side == "left" else 0, 5),
            textcoords="offset points", ha=side, color=colour, fontsize=10, fontweight="bold",
        )  # fmt: skip
    axes.set_ylim(0, 1.16)
    axes.set_ylabel("weight")
    axes.set_title("2  attention: the weight of each token at x", loc="left", color=PRINT.soft, fontsize=10)
    _x_axis(axes)


def _answer(pair, cut, bound) -> None:
    top, bottom = pair
    (x,) = cut.axes
    top.plot(x, cut.formula, color=PRINT.formula, linewidth=5, alpha=0.35, label="formula")
    top.plot(x, cut.model, color=PRINT.model, linewidth=1.4, label="Transformer")
    top.legend(loc="lower center", frameon=False, fontsize=9)
    top.set_title("3  the answer, in its proven band", loc="left", color=PRINT.soft, fontsize=10)
    bottom.axhspan(-bound, bound, color=PRINT.bound, alpha=0.09, linewidth=0)
    for side in (-bound, bound):
        bottom.axhline(side, color=PRINT.bound, linestyle=(0, (5, 3)), linewidth=1.2)
    bottom.plot(x, cut.error, color=PRINT.model, linewidth=1.4)
    bottom.set_ylim(-1.5 * bound, 1.5 * bound)
    bottom.set_yticks([-bound, 0, bound], [f"−{at_most(bound)}", "0", f"+{at_most(bound)}"])
    bottom.set_ylabel("error")
    _x_axis(bottom)


def _x_axis(axes) -> None:
    axes.set_xlim(-2, 2)
    axes.set_xticks(range(-2, 3))
    axes.set_xlabel("x")


if __name__ == "__main__":
    main()
