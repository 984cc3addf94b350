"""The tables of docs/notations.md: what they say is read is read so, and what they say is refused is refused."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

import transformula as tf
from transformula.errors import FormulaError

PAGE = (Path(__file__).parents[3] / "docs" / "notations.md").read_text(encoding="utf-8")
READ, REFUSED = PAGE.split("### What is read")[1].split("### What is refused")


def rows(section):
    """The pieces of code in the cells of a table."""
    for line in section.splitlines():
        cells = [re.findall(r"`([^`]+)`|<code>(.*?)</code>", cell) for cell in line.split(" | ")]
        if line.startswith("| ") and cells[0]:
            yield [[plain or unescape(marked) for plain, marked in cell] for cell in cells]


PAIRS = [
    (latex, texts[min(k, len(texts) - 1)])
    for first, texts, *_ in rows(READ)
    if len(texts) == len(first) or (len(texts) == 1 and texts[0] == "abs(x)")
    for k, latex in enumerate(first)
    if "..." not in latex
]
DOUBTFUL = [latex for first, *_ in rows(REFUSED) for latex in first if latex not in (r"\ln 2x", "ab")]


@pytest.mark.parametrize(("latex", "text"), PAIRS)
def test_what_the_page_says_is_read_is_read_so(latex, text):
    assert tf.from_latex(latex) == text


@pytest.mark.parametrize("latex", DOUBTFUL)
def test_what_the_page_says_is_refused_is_refused(latex):
    with pytest.raises(FormulaError):
        tf.from_latex(latex)


def test_the_tables_were_found():
    assert len(PAIRS) >= 60 and len(DOUBTFUL) >= 40
