"""Every case formula compiled, verified and searched for errors: one table, printed and written to docs/cases.md.

The formulas (formulas.csv) are equations of the Feynman symbolic-regression set (Udrescu & Tegmark, "AI
Feynman", Science Advances 6, 2020) and the standards of surrogate modelling: the borehole function (Harper &
Gupta 1983), the OTL circuit (Ben-Ari & Steinberg 2007) and Friedman's first function (Friedman 1991).
``python benchmarks/cases.py [NAME ...]`` runs some of them and writes nothing. sizes.csv pins the memory tokens of
every model: one that needs more is an error, one that needs fewer is a reason to change the pin. All folders go into
tests/kernel/cases.zip, which the kernel must be able to judge as long as the format has its version.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

import transformula as tf
import uncached  # noqa: F401
from ladder import MARK
from transformula.cluster.batch_jobs import largest_found_error

#: Tolerance in float32, relative to the largest |f| on the box.
REL = 1e-3
HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "cases.md"
FOLDERS = HERE.parent / "tests" / "kernel" / "cases.zip"
COLUMNS = (
    "name", "construction", "layers", "most heads", "memory tokens", "parameters", "eps", "proven bound",
    "found error", "proven / found", "compile s", "verify s", "folder kB",
)  # fmt: skip
HEADER = """# The case formulas

Every formula in `benchmarks/formulas.csv`, compiled at its tolerance in float64 and within a thousandth of
its largest value in float32, verified from its folder and searched for errors (random points, corners, then local ascent
on |T − f|). Written by `make cases`.

- *most heads*: those of the block with the most; *parameters*: non-zero numbers, memory included.
- *proven bound* holds at every point of the box, rounding included; *found error* is the largest error
  found, so the true maximum lies between the two.
- *compile s*, *verify s*: seconds of one core's processor time.
- The formulas are equations of the Feynman symbolic-regression set (Udrescu & Tegmark 2020, *AI Feynman*), and
  the surrogate-modelling standards borehole (Harper & Gupta 1983), OTL circuit (Ben-Ari & Steinberg 2007) and
  Friedman 1 (Friedman 1991).
"""


def pinned() -> dict[str, dict[str, str]]:
    """The most memory tokens that each case may take, by format."""
    with (HERE / "sizes.csv").open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def measure(name: str, formula: str, box: str, eps: float, dtype: str, folders: dict[str, bytes]) -> list[str]:
    """One row, and the files of the folder; a refusal, a broken bound or a model that has grown raises."""
    start = time.process_time()
    tolerance = {"eps": eps} if dtype == "float64" else {"rel": REL}
    model = tf.compile(formula, on=box, dtype=dtype, **tolerance)
    compiled = time.process_time() - start
    if model.memory_tokens > int(pinned()[name][dtype]):
        raise SystemExit(f"{name} has grown to {model.memory_tokens} memory tokens, from {pinned()[name][dtype]}")
    with tempfile.TemporaryDirectory() as place:
        folder = model.save(Path(place) / "model")
        files = {f.name: f.read_bytes() for f in sorted(folder.iterdir())}
        folders |= {f"{name}-{dtype}/{file}": data for file, data in files.items()}
        size = sum(map(len, files.values()))
        start = time.process_time()
        if not tf.verify(folder).verified:
            raise SystemExit(f"{name} does not verify")
        verified = time.process_time() - start
    found, bound = largest_found_error(model, points=20_000, rounds=30), model.certificate.bound
    if found > bound:
        raise SystemExit(f"{name}: an error of {found:g} was found, above the proven {bound:g}")
    ratio = f"{bound / found:.1f}" if found > 0 else "-"
    sizes = (model.layers, model.most_heads, model.memory_tokens, model.parameter_count)
    errors = (f"{model.certificate.eps:.1e}", f"{bound:.2e}", f"{found:.2e}", ratio)
    costs = (f"{compiled:.2f}", f"{verified:.2f}", f"{size / 1000:.0f}")
    return [name, model.construction, *map(str, sizes), *errors, *costs]


def store(folders: dict[str, bytes]) -> None:
    """All folders in one archive, the same bytes for the same folders."""
    with zipfile.ZipFile(FOLDERS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in folders.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def page(tables: dict[str, list[list[str]]]) -> str:
    """The tables in Markdown."""
    lines = []
    for dtype, rows in tables.items():
        lines += [f"\n## {dtype}\n", "| " + " | ".join(COLUMNS) + " |"]
        lines.append("|" + " --- |" * 2 + " ---: |" * (len(COLUMNS) - 2))
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return HEADER + "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Measure, print, and write the page if every case was run."""
    with (HERE / "formulas.csv").open(newline="") as file:
        cases = [row for row in csv.DictReader(file) if not names or row["name"] in names]
    console = Console(width=170)
    tables: dict[str, list[list[str]]] = {"float64": [], "float32": []}
    folders: dict[str, bytes] = {}
    for dtype, rows in tables.items():
        for case in cases:
            console.print(f"[dim]{case['name']}[/dim]", end=" ")
            rows.append(measure(case["name"], case["formula"], case["on"], float(case["eps"]), dtype, folders))
        console.print()
        table = Table(*COLUMNS, title=f"transformula cases ({dtype})")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if not names:
        ladder = PAGE.read_text().partition(MARK)  # the section that ladder.py writes
        PAGE.write_text(page(tables) + "\n" + "".join(ladder[1:]))
        store(folders)
        console.print(f"written to {PAGE} and {FOLDERS}")


if __name__ == "__main__":
    main(sys.argv[1:])
