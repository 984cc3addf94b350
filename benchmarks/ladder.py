"""Tokens against tolerance: every case formula from 1e-2 to 1e-12 in float64, and as far as float32 reaches.

Tolerances are parts of the largest |f| on the box. Where the model of one level already meets the next, that is taken
over; after a refusal nothing tighter is tried. In float32 the tolerance falls by half decades until one is refused; what
the refusal says can be proven is asked for last, or, if that is refused too, what lies halfway to the last bound. ``python benchmarks/ladder.py [NAME ...]`` measures what is
missing in docs/figures/ladder.json, levels measured by other sources than today's included; ``--resume`` keeps those. With
all cases, the section of docs/cases.md and its figure are written. All of it takes about 20 minutes of one core's time.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import transformula as tf
import uncached  # noqa: F401
from transformula.errors import NotProvenError
from yardstick import errors_by_tokens, positive_tokens_for, tokens_for

HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs" / "figures"
STORE = FIGURES / "ladder.json"
PAGE = HERE.parent / "docs" / "cases.md"
MARK = "## Tokens against tolerance"
DECADES = tuple(range(2, 13))
#: Half decades in float32; nothing reaches beyond its unit roundoff.
HALVES = tuple(k / 2 for k in range(4, 15))

#: From here on a ratio is looked into.
MANY = 1.3
POSITIVE = (
    "Where that ratio is above 1.3, the same against rational functions whose denominators have no negative coefficients, as is true",
    "of tables: the least degree is found by linear programming, for tolerances above 1e-8. 1/(1 + 25 x^2) is a rational",
    "function of x, but its poles are too close to the interval for a positive denominator of low degree. Ratios still above 1.3",
    "without a number here are beyond the digits of the solver. The poles of the best rational functions for a root (sqrt) lie on the",
    "negative axis, where no positive denominator has a zero: the tables found are sums of exponentials, with more tokens the smaller",
    "the tolerance. A wave (sin20pi at 1e-11) takes four tokens per period where two would round too much.",
)

Row = dict[str, Any]


@cache
def sources() -> str:
    """A fingerprint of the package's code: what a level was measured with."""
    package = HERE.parent / "src" / "transformula"
    files = sorted(f for f in package.rglob("*") if f.suffix in (".py", ".json"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


def cases() -> list[dict[str, str]]:
    """The case formulas."""
    with (HERE / "formulas.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Store:
    """Levels by case, format and exponent, written after each."""

    def __init__(self, resume: bool) -> None:
        kept: list[Row] = json.loads(STORE.read_text()) if STORE.exists() else []
        self.rows = {key(row): row for row in kept if resume or row["sources"] == sources()}

    def level(self, case: dict[str, str], dtype: str, exponent: float, eps: float | None = None) -> Row:
        """A level as it is stored, or measured now; ``eps`` in place of 10**-exponent of the largest value."""
        wanted = {"name": case["name"], "dtype": dtype, "exponent": exponent, "sources": sources()}
        if key(wanted) not in self.rows:
            self.add(wanted | compiled(case, dtype, exponent, eps))
        return self.rows[key(wanted)]

    def add(self, row: Row) -> None:
        """Keep a level."""
        self.rows[key(row)] = row
        print(json.dumps(row), flush=True)
        ordered = sorted(self.rows.values(), key=lambda r: (r["name"], r["dtype"], r["exponent"]))
        STORE.write_text("[\n" + ",\n".join(json.dumps(r) for r in ordered) + "\n]\n")


def key(row: Row) -> tuple[str, str, float]:
    """What a level is known by."""
    return row["name"], row["dtype"], row["exponent"]


def compiled(case: dict[str, str], dtype: str, exponent: float, eps: float | None) -> Row:
    """One level: tokens and proven bound, or how close a refusal came."""
    start = time.process_time()
    tolerance = {"eps": eps} if eps else {"rel": 10.0**-exponent}
    try:
        model = tf.compile(case["formula"], on=case["on"], dtype=dtype, **tolerance)
    except NotProvenError as error:
        return {"refused": error.best_bound, "seconds": round(time.process_time() - start, 2)}
    proven = {"eps": model.certificate.eps, "bound": model.certificate.bound, "tokens": model.memory_tokens}
    return proven | {"layers": model.layers, "seconds": round(time.process_time() - start, 2)}


def ladder(case: dict[str, str], dtype: str, store: Store) -> Iterator[Row]:
    """The levels of one case, loosest first, up to the first that is refused."""
    last: Row = {}
    for exponent in DECADES if dtype == "float64" else HALVES:
        if last:
            eps = last["eps"] * 10.0 ** (last["exponent"] - exponent)
            if last["bound"] <= eps and (case["name"], dtype, exponent) not in store.rows:
                store.add(last | {"exponent": exponent, "eps": eps, "seconds": 0.0})
        row = store.level(case, dtype, exponent)
        if "refused" in row:
            closest = row["refused"]
            if dtype == "float32" and closest and (not last or closest < 0.9 * last["bound"]):
                least = store.level(case, dtype, 99, 1.02 * closest)
                if "refused" in least and last:
                    least = store.level(case, dtype, 98, (closest * last["bound"]) ** 0.5)
                yield from () if "refused" in least else (least,)
            return
        yield row
        last = row


def measured(names: list[str], resume: bool) -> dict[str, dict[str, list[Row]]]:
    """The ladders of these cases (of all, if none is named), by case and format."""
    store = Store(resume)
    chosen = [case for case in cases() if not names or case["name"] in names]
    return {case["name"]: {d: list(ladder(case, d, store)) for d in ("float64", "float32")} for case in chosen}


Ladders = dict[str, dict[str, list[Row]]]


def least(rows: list[Row], row: Row) -> int:
    """The tokens of a level, or of a tighter one that takes fewer: its model meets this level too."""
    return min(r["tokens"] for r in rows if r["eps"] <= row["eps"])


def _cell(rows: list[Row], exponent: float) -> str:
    row = next((r for r in rows if r["exponent"] == exponent), None)
    if row is None:
        return "-"
    tokens = least(rows, row)
    return str(tokens) if tokens == row["tokens"] else f"{tokens} ({row['tokens']})"


def _table(found: Ladders) -> list[str]:
    heads = ["name", *(f"1e-{k}" for k in DECADES), "float32 reaches", "with tokens"]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for name, by_dtype in found.items():
        wide, narrow = by_dtype["float64"], by_dtype["float32"]
        scale = narrow[0]["eps"] * 10.0 ** narrow[0]["exponent"]
        last = min(narrow, key=lambda r: r["bound"])
        cells = [*(_cell(wide, k) for k in DECADES), f"{last['bound'] / scale:.1e}", str(last["tokens"])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _ratios(found: Ladders) -> list[str]:
    """Tokens beside those of a rational function, for the cases of one variable; where they are many, of a positive one."""
    head = ["| name | " + " | ".join(f"1e-{k}" for k in DECADES) + " |", "| --- |" + " ---: |" * len(DECADES)]
    free, positive = list(head), list(head)
    for case in (case for case in cases() if case["on"].count("=") == 1):
        rows, errors = found[case["name"]]["float64"], errors_by_tokens(case["formula"], case["on"])
        by_level = {row["exponent"]: row for row in rows}
        others = {k: tokens_for(errors, row["eps"]) for k, row in by_level.items()}
        tokens = {k: least(rows, row) for k, row in by_level.items()}
        free.append(_row(case["name"], tokens, others))
        if any(n and tokens[k] > MANY * n for k, n in others.items()):
            within = {
                k: positive_tokens_for(case["formula"], case["on"], by_level[k]["eps"], n)
                for k, n in others.items()
                if n and tokens[k] > MANY * n
            }
            positive += [_row(case["name"], tokens, within)] if any(within.values()) else []
    return [*free, "", *POSITIVE, "", *positive]


def _row(name: str, tokens: dict[float, int], others: dict[float, int | None]) -> str:
    cells = [f"{tokens[k]}/{n} = {tokens[k] / n:.2f}" if (n := others.get(k)) else "-" for k in DECADES]
    return f"| {name} | " + " | ".join(cells) + " |"


def section(found: Ladders) -> str:
    """The part of docs/cases.md."""
    rows = [row for by_dtype in found.values() for ladder in by_dtype.values() for row in ladder]
    spent = sum(row["seconds"] for row in json.loads(STORE.read_text()))
    older = sum(row["sources"] != sources() for row in rows)
    return "\n".join([
        MARK, "", "![Proven bound against memory tokens](figures/ladder.png)", "",
        f"Memory tokens at tolerances from 1e-2 to 1e-12 of the largest |f| in float64 ({len(rows)} levels, {spent:.0f} s of one",
        "core's time, refusals included), and the smallest bound, relative to that value, that is proven in float32. `-`: refused.",
        "A model that meets a tighter level meets the looser ones too; where compile takes more tokens when asked for the looser",
        "level alone, that number is in brackets. Written by `make ladder`, which `make cases` includes.",
        *([f"{older} of the levels were measured with earlier code (`sources` in figures/ladder.json)."] if older else []), "",
        *_table(found), "", "## Against rational functions", "",
        "A table of M tokens whose scores are equally spaced is a rational function of degree M - 1 in e^(hx). Tokens in float64,",
        "divided by 1 + the least degree that the AAA algorithm finds for the same tolerance (in x, and in e^(hx) for a range of h;",
        "`benchmarks/yardstick.py`). Below 1 the table is smaller: its scores need not be equally spaced, and kinks cost nothing.",
        "", *_ratios(found), "",
    ])  # fmt: skip


def draw(found: Ladders) -> None:
    """Bounds, relative to the largest |f|, against tokens."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharex=True)
    alone = [case["name"] for case in cases() if case["on"].count("=") == 1]
    for axis, dtype in zip(axes, ("float64", "float32"), strict=True):
        for name, by_dtype in found.items():
            rows = [row for row in by_dtype[dtype] if row["tokens"]]
            tokens = [row["tokens"] for row in rows]
            scale = rows[0]["eps"] * 10.0 ** rows[0]["exponent"] if rows else 1.0
            style = {"label": name, "marker": "o", "lw": 1.5} if name in alone else {"color": "#999999", "lw": 0.7}
            axis.loglog(tokens, [row["bound"] / scale for row in rows], ms=3, **style)
        axis.set(title=dtype, xlabel="memory tokens")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("proven bound / largest |f|")
    axes[1].legend(title="one variable (grey: several)", fontsize=8, title_fontsize=8, loc="lower right")
    figure.tight_layout(w_pad=4)
    figure.savefig(FIGURES / "ladder.png", dpi=110)


def main(names: list[str], resume: bool) -> None:
    """Measure; with all cases, write the figure and the page."""
    found = measured(names, resume)
    if not names:
        draw(found)
        PAGE.write_text(PAGE.read_text().partition(MARK)[0] + section(found))


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != "--resume"], "--resume" in sys.argv)
