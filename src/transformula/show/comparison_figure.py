"""Constructions side by side: how many numbers each model holds, and how close it was proven to be."""

from __future__ import annotations

from typing import Any

from transformula.compiler.comparison import Comparison
from transformula.show.figures import PRINT, Palette, new_figure, styled


def comparison_figure(found: Comparison, palette: Palette = PRINT) -> Any:
    """Bars of parameters and of memory tokens, and the proven bounds; refused constructions have none."""
    entries = found.entries
    places = range(len(entries))
    with styled(palette):
        figure = new_figure(0.6 + 0.42 * len(entries), 9.0)
        sizes, tokens, bounds = figure.subplots(1, 3, sharey=True)
        for axes, title, values in (
            (sizes, "parameters", [e.parameters for e in entries]),
            (tokens, "memory tokens", [e.memory_tokens for e in entries]),
            (bounds, "proven bound", [e.bound for e in entries]),
        ):
            axes.barh(places, [value or 0 for value in values], height=0.6, color=palette.model)
            axes.set_title(title)
            if any(values):
                axes.set_xscale("log" if title == "proven bound" else "symlog")
            axes.margins(x=0.3)
            axes.minorticks_off()
            for place, value in zip(places, values, strict=True):
                text = "refused" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.2g}"
                text += " (mean)" if axes is bounds and entries[place].norm == "mean" and value is not None else ""
                axes.annotate(text, (value or 0, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        sizes.set_yticks(list(places), [entry.name for entry in entries])
        sizes.invert_yaxis()
    return figure
