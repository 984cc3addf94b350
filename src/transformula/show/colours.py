"""One colour convention for everything drawn: page, explorer, notebook card, files.

Blue is below zero and red above it; the formula is blue, the Transformer orange, the proven bound crimson. Pages
get the colours as CSS variables, light and dark.
"""

from __future__ import annotations

from typing import Any

#: Of signed values: below zero, at zero, above zero. The same in both themes, for images cannot change theirs.
DIVERGING = ("#2166ac", "#f4f4f2", "#b2182b")

LIGHT = {
    "ink": "#1d2733", "soft": "#5d6876", "rule": "#d9dfe7", "paper": "#ffffff", "panel": "#f5f7fa",
    "formula": "#2f6db5", "model": "#d2581c", "bound": "#b3264e", "good": "#1a7a48", "good-bg": "#e5f5ec",
    "bad": "#b00d2b", "bad-bg": "#fde9ec", "input": "#dbe9f6", "memory": "#fbf0d4", "table": "#fde3c4",
    "relu": "#d9efd5", "output": "#eadcf4", "edge": "#7b8794",
}  # fmt: skip
DARK = {
    "ink": "#e4e9ef", "soft": "#9aa7b6", "rule": "#323c48", "paper": "#12171d", "panel": "#1a2129",
    "formula": "#6ea8ea", "model": "#f2935c", "bound": "#f0708f", "good": "#6fd09b", "good-bg": "#15301f",
    "bad": "#ff8095", "bad-bg": "#3a141c", "input": "#1f3a55", "memory": "#4a3d17", "table": "#573718",
    "relu": "#23452a", "output": "#40305a", "edge": "#8592a1",
}  # fmt: skip
_SIGNED = dict(zip(("negative", "neutral", "positive"), DIVERGING, strict=True))
#: How notebooks say that they are dark or light, whatever the system prefers: Jupyter, VS Code, Colab.
_NOTEBOOKS = {
    "dark": ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]"),
    "light": ("[data-jp-theme-light=true]", ".vscode-light", "html[theme=light]"),
}


def page_css() -> str:
    """The variables of a page, or of a drawing that stands on its own."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT | _SIGNED)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n"
    )


def notebook_css(selector: str) -> str:
    """The variables of one element inside somebody else's page: they follow the notebook's theme."""
    css = [
        f"{selector} {{ {_variables(LIGHT)} }}",
        f"@media screen and (prefers-color-scheme: dark) {{ {selector} {{ {_variables(DARK)} }} }}",
    ]
    for theme, colours in (("dark", DARK), ("light", LIGHT)):
        places = ", ".join(f"{sign} {selector}" for sign in _NOTEBOOKS[theme])
        css.append(f"{places} {{ {_variables(colours)} }}")
    return "\n".join(css)


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def diverging() -> Any:
    """The scale of signed values for matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", DIVERGING)
