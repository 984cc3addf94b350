"""What a fit in parts costs: constants measured on this machine, the model made of them, and 10^9 rows by that model.

With d columns and p = C(d + q, q) terms, a row of `exact` takes

    2 (d + 1) (read + hash) + (d + 1) survey + 2 p features + p^2 equations

seconds of one core: two passes read it; the second evaluates its features twice, for its residual and for the p × p
matrix. The state is 8 p^2 bytes, which every process holds and every group of parts sends once. ``python benchmarks/fit_costs.py [--write]``
measures the four constants, compares the model with fits, and prints the tables; ``--write`` puts them into
docs/scaling.md. Times are processor times of one thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from math import comb
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.array_parts import ArrayReader
from transformula.cli.table_files import find_table
from transformula.cluster.table_parts import _MOST_GROUPS, ReadParts
from transformula.learn.solver_choice import MOST_EXACT_TERMS, Settings
from transformula.learn.solvers.features import all_terms, blocks, evaluate_terms, orthonormal_basis
from transformula.learn.solvers.gram import Gram
from transformula.learn.states import HeldOut, Range, RowSample, fit_parts, row_hashes, sample_size, survey_of

PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
SPLIT = HeldOut(0.2)
CHECKED = ((5, 3), (10, 3), (20, 2), (8, 4))
ASKED = ((10, 3), (30, 3), (100, 2), (40, 3), (100, 3))
ROWS = 1_000_000_000
CORES = 32  # of a machine


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least processor time of a few runs."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def table(rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d))
    return X, (X[:, :1] ** 2 + X.sum(axis=1, keepdims=True) + rng.normal(size=(rows, 1)))


def write_parquet(path: Path, X: np.ndarray, Y: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({**{f"x{k}": x for k, x in enumerate(X.T)}, "y": Y[:, 0]}), path, row_group_size=125_000)


def constants() -> dict[str, float]:
    """Seconds for a number that is read, hashed and surveyed, for a feature, and for an entry of the matrix."""
    n, d, q = 250_000, 10, 3
    X, Y = table(n, d)
    terms, numbers = all_terms(d, q), n * (d + 1)
    basis = orthonormal_basis(X[:20_000], q)
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(path := Path(folder) / "t.parquet", X, Y)
        parts = find_table(str(path), "y", []).parts
        read = seconds(lambda: [len(cells["y"]) for part in parts for cells in part.cells(True)])
    both = np.hstack([X, Y])
    hashed = seconds(lambda: row_hashes(both, 1))
    survey = seconds(lambda: (Range.of(X), RowSample.of(X, Y, None, sample_size(d + 1), 0)))
    part = X[:50_000]
    features = seconds(lambda: [evaluate_terms(terms, basis, part[b]).shape for b in blocks(len(part), len(terms))])
    whole = seconds(lambda: Gram(terms, basis, np.zeros(1)).add(part, Y[:50_000]))
    p = len(terms)
    return {
        "read": read / numbers,
        "hash": hashed / numbers,
        "survey": survey / numbers,
        "features": features / (len(part) * p),
        "equations": (whole - features) / (len(part) * p * p),
    }


def short(value: float) -> str:
    """Two digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,.10g}"


def row_cost(c: dict[str, float], d: int, q: int) -> float:
    """Seconds of one core for a row."""
    p = comb(d + q, q)
    return (
        2 * (d + 1) * (c["read"] + c["hash"]) + (d + 1) * c["survey"] + 2 * p * c["features"] + p * p * c["equations"]
    )


def measured(d: int, q: int) -> float:
    """The same from a fit of rows in memory, with the cost of reading left out."""
    found = []
    for rows in (100_000, 300_000):
        X, Y = table(rows, d)
        parts = ReadParts(d, 1, (ArrayReader(X, Y),))

        def fit(parts: ReadParts = parts) -> None:
            fit_parts(parts, "exact", Settings(q), survey_of(parts, SPLIT), SPLIT)

        found.append(seconds(fit, 1))
    return (found[1] - found[0]) / 200_000  # what does not grow with the rows falls out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with threadpool_limits(limits=1):
        c = constants()
        lines = [
            "One core, nanoseconds: " + ", ".join(f"{name} {1e9 * value:.3g}" for name, value in c.items()) + ".",
            "",
            "| columns | degree | terms | state | µs a row, model | measured |",
            "| ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        # A fit from memory reads nothing, scores nothing and evaluates features twice, four fifths of the rows.
        for d, q in CHECKED:
            p = comb(d + q, q)
            inside = 0.8 * (2 * p * c["features"] + p * p * c["equations"])
            model = (d + 1) * (2 * c["hash"] + c["survey"]) + inside
            lines.append(
                f"| {d} | {q} | {p:,} | {short(8e-6 * p * p)} MB | {1e6 * model:.2g} | {1e6 * measured(d, q):.2g} |"
            )
    lines += [
        "",
        f"{ROWS:,} rows from Parquet by that model:",
        "",
        f"| columns | degree | terms | state | core hours | machines of {CORES} cores for one hour | sent to the client |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for d, q in ASKED:
        p, cost = comb(d + q, q), ROWS * row_cost(c, d, q) / 3600
        size = f"{short(8e-9 * p * p)} GB"
        if p > MOST_EXACT_TERMS:
            lines.append(f"| {d} | {q} | {p:,} | {size} | refused: more than {MOST_EXACT_TERMS:,} terms | | |")
            continue
        sent = f"{short(8e-9 * p * p * _MOST_GROUPS)} GB"
        lines.append(f"| {d} | {q} | {p:,} | {size} | {short(cost)} | {int(np.ceil(cost / CORES))} | {sent} |")
    text = "\n".join(lines)
    print(text)
    if given.write:
        begin, end = "<!-- fit costs: written by benchmarks/fit_costs.py -->", "<!-- end of fit costs -->"
        page = PAGE.read_text(encoding="utf-8")
        assert begin in page and end in page
        PAGE.write_text(f"{page.split(begin)[0]}{begin}\n{text}\n{end}{page.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
