"""The summary of a batch: one row for each formula, as CSV, JSON and a page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from html import escape
from pathlib import Path
from typing import Any

from transformula.files import write_file
from transformula.show import page_parts as html

#: Rows shown on the page; the CSV file has all.
MAX_ROWS = 5_000
_NUMBERS = ("layers", "tokens", "parameters", "eps", "bound", "found", "seconds")
#: Errors that are mistakes in a row.
_MISTAKES = ("FormulaError", "BoxError", "InputError")
#: Names that journals of earlier versions use.
_RENAMED = {"attacked": "found"}


@dataclass(frozen=True)
class Row:
    """One formula's outcome: sizes and bounds, or the reason in ``error`` and its class in ``kind``."""

    name: str
    formula: str
    box: str
    construction: str | None = None
    layers: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    norm: str | None = None
    eps: float | None = None
    bound: float | None = None
    found: float | None = None
    seconds: float | None = None
    error: str = ""
    kind: str = ""

    @property
    def verdict(self) -> str:
        """Proven, not proven, or not read (a mistake in the row, which no search is to blame for)."""
        return "proven" if not self.error else "not read" if self.kind in _MISTAKES else "not proven"

    @property
    def proven(self) -> bool:
        """Whether the bound was proven."""
        return not self.error


@dataclass(frozen=True)
class Summary:
    """All rows, in the order of the table; ``kept`` of them were finished by an earlier run."""

    out: Path
    verb: str
    rows: tuple[Row, ...]
    kept: int
    workers: int
    seconds: float

    @classmethod
    def of(
        cls, lines: Iterable[Mapping[str, Any]], out: Path, verb: str, kept: int, workers: int, seconds: float
    ) -> Summary:
        """From the journal's lines."""
        known = {field.name for field in fields(Row)}
        rows = []
        for line in lines:
            facts = {_RENAMED.get(key, key): value for key, value in line["facts"].items()}
            facts = {key: value for key, value in facts.items() if key in known}
            asked = {key: line["asked"][key] for key in ("formula", "box")}
            told = {"seconds": line["seconds"], "error": line["error"], "kind": line.get("kind", "")}
            rows.append(Row(line["name"], **asked, **facts, **told))
        return cls(out, verb, tuple(rows), kept, workers, seconds)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows without a proof."""
        return tuple(row for row in self.rows if row.error)

    @property
    def facts(self) -> dict[str, Any]:
        """Counts and times."""
        return {
            "verb": self.verb,
            "formulas": len(self.rows),
            "proven": len(self.rows) - len(self.failed),
            "failed": len(self.failed),
            "kept": self.kept,
            "workers": self.workers,
            "seconds": round(self.seconds, 3),
            "out": str(self.out),
        }


#: Files of a summary.
SUMMARIES = ("summary.csv", "summary.json", "summary.html")


def write_summary(summary: Summary) -> None:
    """Write summary.csv, summary.json and summary.html."""
    rows = [asdict(row) for row in summary.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(summary.out / "summary.csv", text.getvalue())
    write_file(summary.out / "summary.json", json.dumps({**summary.facts, "rows": rows}, indent=1) + "\n")
    write_file(summary.out / "summary.html", _page(summary))


def _has_means(summary: Summary) -> bool:
    return any(row.norm == "mean" for row in summary.rows)


def _page(summary: Summary) -> str:
    facts = summary.facts
    said = f"{facts['proven']:,} of {facts['formulas']:,} formulas proven"
    columns = ("name", "formula", "box", "construction", *(("norm",) if _has_means(summary) else ()), *_NUMBERS)
    proven = [row for row in summary.rows if row.proven]
    body = [f"<h1>{escape(str(summary.out.name))}</h1>", html.paragraph(said + ".")]
    if summary.failed:
        failures = [
            (escape(row.name), html.short(row.formula), row.verdict, escape(row.error))
            for row in summary.failed[:MAX_ROWS]
        ]
        body.append(html.section("Not proven", html.table(("name", "formula", "", "why"), failures)))
    cells = [["" if (v := getattr(row, name)) is None else html.short(v) for name in columns] for row in proven]
    numeric = [k for k, name in enumerate(columns) if name in _NUMBERS]
    body.append(html.section("Proven", html.table(columns, cells[:MAX_ROWS], numeric) if cells else ""))
    if max(len(cells), len(summary.failed)) > MAX_ROWS:
        body.append(html.paragraph(f"The first {MAX_ROWS:,} of each are shown; summary.csv has all."))
    body.append(
        html.paragraph("Bounds are proven on the whole box, rounding included; “found” is the largest found error.")
    )
    if _has_means(summary):
        body.append(html.paragraph("Where the norm is mean, eps and bound are of the mean error over the box."))
    return html.page(f"{summary.out.name}: {said}", "\n".join(filter(None, body)))
