"""Every case formula as a Coq theorem: written, transcribed, compiled. The table goes into docs/coq.md.

``python benchmarks/coq.py [NAME ...]`` proves some of the stored folders (tests/kernel/cases.zip) and of the models below,
and prints; ``--write`` puts each row into the page when it is known, in the place of an older one. Seconds are processor
time of `coqc`, without the library; nothing comes from the cache but the library.

``--campaign OUT.json FIRST COUNT`` takes random formulas (campaign.py) instead and goes on where OUT.json ends: *accepted*;
*refused*, where a theorem cannot be written or a lemma is not accepted, by reason; *outside*, where the formula does not
compile to tables of one axis of functions that Interval knows. Axioms, which take 8 s to list, are listed for every tenth
theorem; of the others Verdict.v only has to be accepted. With ``--write-only`` Coq is not asked: *written*.

``--bounds`` compares, without `coqc`, what Coq's lemmas add up to with the tightest tables and the kernel's bound, both
without rounding: a ratio below 1 would be a proof that the kernel misses.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]
from campaign import Task, in_child, make_task
from support.coq_folders import compiled_theorem
from transformula.coq.circuit_theorem import CircuitTheorem
from transformula.coq.coq_check import prove_files
from transformula.coq.coq_compiler import Compiled
from transformula.coq.coq_files import BITS, LIBRARY, coq_files
from transformula.coq.coq_source import Source, precision
from transformula.errors import ExportError, TransformulaError

HERE = Path(__file__).parent
FOLDERS, PAGE = HERE.parent / "tests" / "kernel" / "cases.zip", HERE.parent / "docs" / "coq.md"
MARK = "<!-- written by benchmarks/coq.py -->"
#: Seconds of processor time that compiling a formula may take; and numbers in a reason, which do not distinguish it.
SECONDS, NUMBER = 12.0, re.compile(r"\d+(\.\d+)?(e-?\d+)?")
#: Models of the README and the tutorial, and one of each kind that the cases do not have: formulas, box and options.
MODELS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "gravity": (["G*m1*m2/r**2"], "G=1..2, m1=1..2, m2=1..2, r=1..3", {"eps": 1e-4}),
    "bell": (["exp(-x**2)"], "x=-2..2", {"eps": 0.01}),
    "sum": (["sin(x1) + sin(x2)"], "x1..x2=0..2*pi", {"eps": 1e-6}),
    "poly": (["x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4"], "x1..x4=-3..3", {}),
    "pieces": (["where(x > 0, x**2, sin(x))"], "x=-1..1", {"eps": 1e-3}),
    "largest": (["max(x, y, x*y, 1/4)"], "x=-1..1, y=-1..1", {"eps": 1e-3}),
}
COLUMNS = ("name", "accepted", "table files", "kB", "coqc s", "slowest file", "s", "MB")


def measured(name: str, place: Path) -> list[str]:
    """One row of the table."""
    folder = place / f"{name}-float64"
    if name in MODELS:
        _compiled(Task(0, *MODELS[name]), folder)
    else:
        with zipfile.ZipFile(FOLDERS) as archive:
            archive.extractall(place, [n for n in archive.namelist() if n.startswith(f"{folder.name}/")])
    try:
        files = coq_files(folder)
    except TransformulaError as error:
        return [name, f"no: {error}", *[""] * 6]
    verdict = prove_files(folder, files, jobs=1)
    own = [file for file in verdict.files if file.name not in LIBRARY]
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


def compare_bounds() -> None:
    """The errors that Coq carries over those that the kernel proves, of every case that is a circuit."""
    ratios = {}
    with zipfile.ZipFile(FOLDERS) as archive, tempfile.TemporaryDirectory() as place:
        archive.extractall(place)
        for folder in sorted(Path(place).glob("*-float64")):
            with precision(BITS):
                source = Source.of(folder)
                kernel = Fraction(source.certificate.bound) - Fraction(source.certificate.rounding)
                if not source.is_polynomial and kernel > 0:
                    theorem = CircuitTheorem(source, Fraction(1))
                    theorem.run()
                    ratios[folder.name.removesuffix("-float64")] = float(max(theorem.bounds) / kernel)
    ordered = sorted(ratios, key=ratios.__getitem__)
    for what, name in (("least", ordered[0]), ("median", ordered[len(ordered) // 2]), ("largest", ordered[-1])):
        print(f"{what:8} {ratios[name]:.2f} ({name})")
    print(f"{len(ratios)} cases, {sum(ratio < 1 for ratio in ratios.values())} below 1")


def tried(seed: int, place: Path, ask: bool) -> dict[str, Any]:
    """A random formula, compiled and proven."""
    task = make_task(seed)
    found = {"formulas": task.formulas, "box": task.box, **task.options}
    kind, said, _, _ = in_child(lambda: _compiled(task, place), SECONDS)
    if kind != "ok" or said:
        return found | {"status": "outside", "why": said if kind == "ok" else f"compiling: {kind}"}
    try:
        files = coq_files(place)
    except ExportError as error:
        return found | {"status": "outside", "why": str(error)}
    except TransformulaError as error:
        return found | {"status": "refused", "why": str(error)}
    if not ask:
        return found | {"status": "written", "why": ""}
    whole = seed % 10 == 0
    reasons, compiled = _judged(place, files, whole)
    seconds = round(sum(file.seconds for file in compiled if file.name not in LIBRARY), 1)
    answer = {"status": "refused" if reasons else "accepted", "why": "".join(reasons[:1]), "axioms": whole}
    return found | answer | {"seconds": seconds}


def _judged(folder: Path, files: dict[str, str], axioms: bool) -> tuple[Sequence[str], Sequence[Compiled]]:
    """Why a theorem is not accepted, and what each file took, without the list of axioms if that is not wanted."""
    if not axioms:
        return compiled_theorem(folder, files)
    verdict = prove_files(folder, files, jobs=1)
    return verdict.reasons, verdict.files


def _compiled(task: Task, place: Path) -> str:
    """Compile into a folder; why there is none."""
    import transformula as tf

    formulas = task.formulas if len(task.formulas) > 1 else task.formulas[0]
    try:
        tf.compile(formulas, on=task.box, **task.options).save(place)
    except TransformulaError as error:
        return f"compiling: {type(error).__name__}"
    return ""


def run_campaign(out: Path, first: int, count: int, ask: bool) -> None:
    """Seeds that the file does not have yet; counts by status and reason."""
    results = json.loads(out.read_text()) if out.exists() else {}
    for seed in range(first, first + count):
        if str(seed) not in results:
            with tempfile.TemporaryDirectory() as place:
                results[str(seed)] = tried(seed, Path(place, "model"), ask)
            out.write_text(json.dumps(results, indent=0))
            if results[str(seed)]["status"] != "outside":
                print(seed, json.dumps(results[str(seed)]), flush=True)
    print(json.dumps(Counter(r["status"] for r in results.values())))
    reasons = Counter(NUMBER.sub("..", r["why"])[:100] for r in results.values() if r["why"])
    print("\n".join(f"{times:4}  {why}" for why, times in reasons.most_common()))


def main(arguments: list[str]) -> None:
    """Prove, print, and write the table if that is asked for."""
    if arguments == ["--bounds"]:
        compare_bounds()
        return
    if arguments[:1] == ["--campaign"]:
        run_campaign(Path(arguments[1]), int(arguments[2]), int(arguments[3]), "--write-only" not in arguments)
        return
    with (HERE / "formulas.csv").open(newline="") as file:
        known = [row["name"] for row in csv.DictReader(file)] + list(MODELS)
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = place
        for name in [name for name in arguments if name != "--write"] or known:
            row = measured(name, Path(place))
            print(" | ".join(row), flush=True)
            if "--write" in arguments:
                write(row, known)


def write(row: list[str], known: list[str]) -> None:
    """Put one row into the page's table."""
    before, _, table = PAGE.read_text().partition(MARK)
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.split("\n") if "|" in line][2:]
    rows = {found[0]: found for found in cells} | {row[0]: row}
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- | --- |" + " ---: |" * (len(COLUMNS) - 2)]
    lines += ["| " + " | ".join(rows[name]) + " |" for name in known if name in rows]
    PAGE.write_text(before + MARK + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
