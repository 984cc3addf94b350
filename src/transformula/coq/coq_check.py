"""A theorem checked: Model.v compared with the folder, every file compiled by `coqc`, the axioms read and judged.

Files come from the generator, never from a folder: compiling a stranger's Coq file may run a stranger's code. An export
in the folder is compared with them instead.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from transformula.coq.coq_compiler import Compiled, Workshop, find_coqc
from transformula.coq.coq_files import (
    CHECKED,
    LIBRARY,
    MODEL,
    PAGE,
    PROOF,
    STATEMENT,
    VERDICT,
    VERDICT_TEXT,
    coq_files,
    library_file,
    without_native_floats,
)
from transformula.coq.transcription import expected

#: Axioms of the reals; and the modules whose axioms describe native integers and floats.
REALS = (
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
)
NATIVE = ("PrimInt63", "Uint63", "Uint63Axioms", "PrimFloat", "FloatAxioms")
#: Names that generated files may have: none of them can stand before a module of the libraries.
_NAMES = re.compile(r"(Table|Part)_\d+(_\d+)?\.v")
#: Commands that assume something, switch a check off, or reach outside of the file.
_FORBIDDEN = re.compile(
    r"\b(Add|Admitted|admit|Axioms?|Parameters?|Conjectures?|Context|Module|Declare|Load|Redirect|Extraction|Register|"
    r"Set|Unset|Global|Export|bypass_check|give_up|Primitive|Drop|Cd|Abort|Fail)\b|#\[|\(\*"
)
#: Files that decide what is claimed; Verdict.v, which asks whether that is proven, is fixed.
SAID = ("Transformer.v", "Typed.v", MODEL)
#: Files at once: each takes up to 1.1 GB.
JOBS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class CoqVerdict:
    """Whether Coq accepts the theorem, else why not; and what each file took."""

    proven: bool
    reasons: tuple[str, ...] = ()
    axioms: tuple[str, ...] = ()
    files: tuple[Compiled, ...] = ()

    @property
    def seconds(self) -> float:
        """Processor time of all files."""
        return round(sum(file.seconds for file in self.files), 2)

    @property
    def memory(self) -> int:
        """Peak memory of any file, in bytes."""
        return max((file.memory for file in self.files), default=0)


def prove_folder(folder: Path, exported: Path | None = None, jobs: int = JOBS, floats: bool = True) -> CoqVerdict:
    """Write a model's theorem to a temporary place and check it; an ``exported`` theorem must be the same.

    The folder is read once, and must still be the same at the end. Without ``floats`` no proof computes in native ones.
    """
    find_coqc()
    with tempfile.TemporaryDirectory() as place:
        copy, contents = Path(place), {name: (folder / name).read_bytes() for name in CHECKED}
        for name, content in contents.items():
            (copy / name).write_bytes(content)
        files = coq_files(copy)
        if exported is not None and (changed := differing(files, exported)):
            return CoqVerdict(False, (f"{exported / changed} is not what the model calls for: export it again",))
        verdict = prove_files(copy, files if floats else without_native_floats(files), jobs)
    if any((folder / name).read_bytes() != content for name, content in contents.items()):
        return CoqVerdict(False, (f"{folder} was changed while it was checked",), (), verdict.files)
    return verdict


def differing(files: Mapping[str, str], exported: Path) -> str:
    """The first exported file that differs from what is generated, or is not generated; empty if there is none."""
    for name, text in files.items():
        path = exported / name
        if not path.is_file() or path.read_bytes() != text.encode():
            return name
    return next((path.name for path in sorted(exported.glob("*.v")) if path.name not in files), "")


def objection(folder: Path, files: Mapping[str, str]) -> str:
    """Why files are not a theorem about a folder, before Coq is asked; empty if nothing is found."""
    for name in LIBRARY:
        if files.get(name) not in (library_file(name), without_native_floats({name: library_file(name)})[name]):
            return f"{name} is not the library's file"
    if files.get(VERDICT) != VERDICT_TEXT:
        return f"{VERDICT} is not the one that asks for the claim of {MODEL}"
    for name, text in files.items():
        if name not in (*LIBRARY, MODEL, STATEMENT, PROOF, VERDICT, PAGE) and not _NAMES.fullmatch(name):
            return f"{name} is no file of a theorem"
        if name not in (*LIBRARY, VERDICT, PAGE) and (word := _FORBIDDEN.search(text)):
            return f"{name} contains the command {word[0]}"
    try:
        wanted = expected(*((folder / name).read_bytes() for name in CHECKED[:3])).split("\n")
    except (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RecursionError, SyntaxError,
            TypeError, ValueError) as error:  # fmt: skip
        return f"the folder's files cannot be transcribed: {error or type(error).__name__}"
    found = files.get(MODEL, "").split("\n")
    pairs = zip([*wanted, ""], [*found, ""], strict=False)
    line = next((n for n, (left, right) in enumerate(pairs, 1) if left != right), 0)
    return f"line {line} of {MODEL} is not what the folder holds" if wanted != found else ""


def prove_files(folder: Path, files: Mapping[str, str], jobs: int = JOBS) -> CoqVerdict:
    """Check given files against a folder and compile them.

    What the theorem says (`SAID`) is never taken from the cache. It is compiled first, and put back before Verdict.v is
    compiled, so that no other file can have replaced it.
    """
    if reason := objection(folder, files):
        return CoqVerdict(False, (reason,))
    sources = {name: text for name, text in files.items() if name != PAGE}
    workshop = Workshop(sources, frozenset(sources) - {*SAID, STATEMENT, PROOF, VERDICT}, jobs)
    with tempfile.TemporaryDirectory() as folder_name:
        place = Path(folder_name)
        workshop.compile(place, SAID)
        said = {path: path.read_bytes() for path in place.glob("*.vo")}
        workshop.compile(place, [name for name in sources if name != VERDICT])
        for path, content in said.items():
            path.write_bytes(content)
        compiled = tuple(workshop.compile(place, [VERDICT]))
    refused = [f"coqc does not accept {file.name}, {file.why}" for file in compiled if file.printed is None]
    if refused or VERDICT not in workshop.done:
        return CoqVerdict(False, tuple(refused) or ("files require each other",), (), compiled)
    axioms = assumptions(workshop.done[VERDICT].printed or "")
    reasons = tuple(
        f"the proof rests on {name}, which is no axiom of the reals or of native numbers"
        for name in axioms
        if not is_accepted(name)
    )
    return CoqVerdict(not reasons, reasons, tuple(axioms), compiled)


def assumptions(output: str) -> list[str]:
    """The names under which Print Assumptions lists what a proof rests on; any other line counts as one."""
    lines = [line for line in output.splitlines() if line and not line[0].isspace()]
    if lines == ["Closed under the global context"]:
        return []
    if lines[:1] != ["Axioms:"]:
        return ["something unknown"]
    return [line.split()[0] for line in lines[1:]]


def is_accepted(name: str) -> bool:
    """Whether an axiom is one of the reals or of native numbers."""
    return name in REALS or name.partition(".")[0] in NATIVE
