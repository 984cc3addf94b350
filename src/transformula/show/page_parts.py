"""Parts of a self-contained page: tables, numbers with all their digits, the document with its policy."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from transformula.kernel.arithmetic import at_most
from transformula.show.figure_style import page_css

#: Number of columns that fit on a phone.
_NARROW = 4


def page(title: str, body: str, data: Any = None) -> str:
    """The whole document. With ``data``, report.js runs on it; nothing else runs, nothing is fetched."""
    folder = files("transformula.show") / "static"
    style = page_css() + "".join((folder / name).read_text(encoding="utf-8") for name in ("drawing.css", "report.css"))
    scripts, allowed = "", "'none'"
    if data is not None:
        code = "".join((folder / name).read_text(encoding="utf-8") for name in ("panzoom.js", "report.js"))
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        allowed = f"'sha256-{digest}'"
        # "<" inside the data could end the element
        content = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        scripts = f'<script type="application/json" id="attention">{content}</script>\n<script>{code}</script>\n'
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n{body}\n{scripts}</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A titled section; empty parts are dropped, and so is a section without any."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{inside}\n</section>" if inside else ""


def paragraph(text: str) -> str:
    """Plain text as a paragraph."""
    return f"<p>{escape(text)}</p>"


def number(value: float, name: str = "") -> str:
    """A float with all its digits, readable by people and by ``data-claim``."""
    return _data(value, name, repr(value))


def bound(value: float, name: str = "") -> str:
    """A bound to read, rounded up to three digits; all of them are in its ``value``."""
    return _data(value, name, at_most(value))


def _data(value: float, name: str, text: str) -> str:
    claim = f' data-claim="{escape(name)}"' if name else ""
    return f'<data value="{value!r}"{claim}>{text}</data>'


def short(value: Any) -> str:
    """A value for a table's cell: short numbers, escaped text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(short(v) for v in value[:40]) + (", …" if len(value) > 40 else "")
    text = str(value)
    return escape(text if len(text) <= 600 else text[:597] + "...")


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Name and value, one for each row; values are markup."""
    body = "".join(f'<tr><th scope="row">{escape(k)}</th><td class="word">{v}</td></tr>' for k, v in rows)
    return f'<div class="wide"><table>{body}</table></div>'


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[int] = (),
    broad: Sequence[int] = (),
) -> str:
    """Rows of markup under named columns; ``numeric`` ones are set to the right, ``broad`` ones get most of the width.

    A wide table becomes a list on a narrow screen, where each cell says its column's name.
    """
    kinds = ["number" if k in numeric else "word" + " broad" * (k in broad) for k in range(len(columns))]
    head = "".join(f'<th scope="col" class="{c}">{escape(n)}</th>' for n, c in zip(columns, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{c}" data-column="{escape(n)}"><span>{v}</span></td>'
            for v, c, n in zip(row, kinds, columns, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    kind = f' class="stacks{" set" * bool(broad)}"' if len(columns) > _NARROW else ""
    return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def columns(*parts: str) -> str:
    """Side by side where there is room."""
    return '<div class="columns">' + "".join(f"<div>{part}</div>" for part in parts) + "</div>"


def figure(drawing: str, caption: str = "") -> str:
    """A drawing and its caption, which is plain text."""
    below = f"<figcaption>{escape(caption).replace(' %', '&nbsp;%')}</figcaption>" if caption else ""
    return f"<figure>{drawing}{below}</figure>"


def folded(title: str, inside: str) -> str:
    """A part that is shown on demand."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def counted(value: int, noun: str) -> str:
    """A number and its noun.

    Examples
    --------
    >>> counted(1, "layer"), counted(1200, "token")
    ('1 layer', '1,200 tokens')
    """
    return f"{value:,} {noun}{'s' if value != 1 else ''}"


def percent(share: float) -> str:
    """A share in percent, with two digits that matter.

    Examples
    --------
    >>> percent(0.996), percent(0.0123), percent(4e-9)
    ('100 %', '1.2 %', '4e-07 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.2g} %"


def cut(text: str, most: int) -> str:
    """The text, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
