"""Every case formula as a Coq theorem: written, transcribed, compiled. The table goes into docs/coq.md.

``python benchmarks/coq.py [NAME ...]`` proves some of the stored folders (tests/kernel/cases.zip) and prints; ``--write``
puts the table into the page. Seconds are processor time of `coqc`, the library (once a process) not counted.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import zipfile
from pathlib import Path

from transformula.coq.coq_check import library, prove_files
from transformula.coq.coq_files import coq_files
from transformula.errors import TransformulaError

HERE = Path(__file__).parent
FOLDERS, PAGE = HERE.parent / "tests" / "kernel" / "cases.zip", HERE.parent / "docs" / "coq.md"
MARK = "<!-- written by benchmarks/coq.py -->"
COLUMNS = ("name", "accepted", "table files", "kB", "coqc s", "slowest file", "s", "MB")


def measured(name: str, place: Path) -> list[str]:
    """One row of the table."""
    folder = place / f"{name}-float64"
    with zipfile.ZipFile(FOLDERS) as archive:
        archive.extractall(place, [n for n in archive.namelist() if n.startswith(f"{folder.name}/")])
    try:
        files = coq_files(folder)
    except TransformulaError as error:
        return [name, f"no: {error}", *[""] * 6]
    verdict = prove_files(folder, files, jobs=1)
    own = verdict.files[len(library().files) :]
    slowest = max(own, key=lambda file: file.seconds)
    written = sum(len(text) for file, text in files.items() if file.startswith(("Table_", "Model", "Proof")))
    return [
        name,
        "yes" if verdict.proven else f"no: {verdict.reasons[0]}",
        str(sum(file.startswith("Table_") for file in files)),
        f"{written / 1000:.0f}",
        f"{sum(file.seconds for file in own):.1f}",
        slowest.name,
        f"{slowest.seconds:.1f}",
        f"{verdict.memory / 1e6:.0f}",
    ]


def main(arguments: list[str]) -> None:
    """Prove, print, and write the table if that is asked for."""
    names = [name for name in arguments if name != "--write"]
    with (HERE / "formulas.csv").open(newline="") as file:
        names = names or [row["name"] for row in csv.DictReader(file)]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            rows.append(measured(name, Path(place)))
            print(" | ".join(rows[-1]), flush=True)
    if "--write" in arguments:
        lines = ["| " + " | ".join(COLUMNS) + " |", "| --- | --- |" + " ---: |" * (len(COLUMNS) - 2)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        before, _, _ = PAGE.read_text().partition(MARK)
        PAGE.write_text(before + MARK + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
