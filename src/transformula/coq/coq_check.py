"""A theorem checked: transcription compared, every file compiled by `coqc` under limits, the axioms read and judged.

Files come from the generator, never from a folder: compiling a stranger's Coq file may run a stranger's code. An export
in the folder is compared with them instead.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from transformula.coq.coq_files import LIBRARY, MODEL, PAGE, PROOF, VERDICT, coq_files, library_file
from transformula.coq.transcription import check as check_transcription
from transformula.errors import InputError
from transformula.progress import report

#: Seconds of processor time and bytes of memory that one file may take.
MAX_SECONDS, MAX_MEMORY = 600, 6 << 30
#: Axioms of the reals; and the modules whose axioms describe native integers and floats.
REALS = (
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
)
NATIVE = ("PrimInt63", "Uint63", "PrimFloat", "FloatAxioms")
_FORBIDDEN = re.compile(
    r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|Module|Declare|Load|Redirect|Unset|bypass_check|give_up|Primitive)\b"
)
INSTALL = "install Debian's packages coq and libcoq-interval (apt-get install coq libcoq-interval)"


class Compiled(NamedTuple):
    """A file that `coqc` has read: what it printed (None if it was refused), its processor time and its peak memory."""

    name: str
    printed: str | None
    seconds: float
    memory: int


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


def find_coqc() -> str:
    """The compiler's path; without it or the Interval library, one sentence on what to install."""
    found = shutil.which("coqc")
    if found is None:
        raise InputError(f"coqc is not installed: {INSTALL}")
    where = subprocess.run([found, "-where"], capture_output=True, text=True, check=False).stdout.strip()
    if not (Path(where) / "user-contrib" / "Interval").is_dir():
        raise InputError(f"Coq's Interval library is not installed: {INSTALL}")
    return found


def prove_folder(folder: Path, exported: Path | None = None, jobs: int = 2) -> CoqVerdict:
    """Write a model's theorem to a temporary place and check it; an ``exported`` theorem must be the same."""
    find_coqc()
    files = coq_files(folder)
    if exported is not None and (changed := differing(files, exported)):
        return CoqVerdict(False, (f"{exported / changed} is not what the model calls for: export it again",))
    return prove_files(folder, files, jobs)


def differing(files: Mapping[str, str], exported: Path) -> str:
    """The first exported file that differs from what is generated; empty if none does."""
    for name, text in files.items():
        path = exported / name
        if not path.is_file() or path.read_bytes() != text.encode():
            return name
    return ""


def objection(folder: Path, files: Mapping[str, str]) -> str:
    """Why files are not a theorem about a folder, before Coq is asked; empty if nothing is found."""
    for name in LIBRARY:
        if files.get(name) != library_file(name):
            return f"{name} is not the library's file"
    for name, text in files.items():
        if name not in (*LIBRARY, PAGE) and (word := _FORBIDDEN.search(text)):
            return f"{name} contains the command {word[0]}"
    try:
        return check_transcription(folder, files[MODEL])
    except (AssertionError, LookupError, SyntaxError, TypeError, ValueError, OSError) as error:
        return f"the folder's files cannot be transcribed: {type(error).__name__}"


def prove_files(folder: Path, files: Mapping[str, str], jobs: int = 2) -> CoqVerdict:
    """Check given files against a folder and compile them."""
    if reason := objection(folder, files):
        return CoqVerdict(False, (reason,))
    compiled = list(library().files)
    total = len(files) - 1
    if refusal := _refusal(compiled):
        return refusal
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(max(1, jobs)) as pool:
        for name, text in files.items():
            Path(place, name).write_text(text, encoding="utf-8")
        for path in Path(library().place.name).glob("*.vo"):
            shutil.copy(path, place)
        for stage in stages(files):
            report("coqc " + " ".join(stage), len(compiled), total - len(compiled))
            compiled += pool.map(partial(_compiled, place), stage)
            if refusal := _refusal(compiled):
                return refusal
    axioms = assumptions(compiled[-1].printed or "")
    unknown = [name for name in axioms if not is_accepted(name)]
    reasons = tuple(
        f"the proof rests on {name}, which is no axiom of the reals or of native numbers" for name in unknown
    )
    return CoqVerdict(not unknown, reasons, tuple(axioms), tuple(compiled))


def stages(files: Mapping[str, str]) -> list[list[str]]:
    """The files in groups that can be compiled at the same time, each after those before it."""
    tables = sorted((name for name in files if name.startswith("Table_")), key=lambda name: (len(name), name))
    return [[MODEL, *tables], [PROOF], [VERDICT]]


def _refusal(compiled: list[Compiled]) -> CoqVerdict | None:
    """The verdict if a file was refused."""
    refused = [f"coqc does not accept {file.name}" for file in compiled if file.printed is None]
    return CoqVerdict(False, tuple(refused), (), tuple(compiled)) if refused else None


class CompiledLibrary(NamedTuple):
    """The library, compiled in a temporary folder."""

    place: tempfile.TemporaryDirectory[str]
    files: tuple[Compiled, ...]


@lru_cache(maxsize=1)
def library() -> CompiledLibrary:
    """Compile the library, once a process."""
    place = tempfile.TemporaryDirectory()
    for name in LIBRARY:
        Path(place.name, name).write_text(library_file(name), encoding="utf-8")
    report("coqc " + " ".join(LIBRARY), 0, None)
    return CompiledLibrary(place, tuple(_compiled(place.name, name) for name in LIBRARY))


def _compiled(place: str, name: str) -> Compiled:
    """Compile one file under the limits."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))

    command = [find_coqc(), "-q", "-Q", ".", "Transformula", "-w", "none", name]
    with tempfile.TemporaryFile("w+") as printed:
        running = subprocess.Popen(command, cwd=place, stdout=printed, stderr=subprocess.DEVNULL, preexec_fn=limits)
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read() if running.returncode == 0 else None
    return Compiled(name, text, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def assumptions(output: str) -> list[str]:
    """The names under which Print Assumptions lists what a proof rests on; any other line counts as one."""
    lines = [line for line in output.splitlines() if line and not line[0].isspace()]
    if lines[:1] == ["Closed under the global context"]:
        return []
    if lines[:1] != ["Axioms:"]:
        return ["something unknown"]
    return [line.split()[0] for line in lines[1:]]


def is_accepted(name: str) -> bool:
    """Whether an axiom is one of the reals or of native numbers."""
    return name in REALS or name.partition(".")[0] in NATIVE
