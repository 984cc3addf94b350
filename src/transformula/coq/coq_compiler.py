"""`coqc`, run file by file: which Coq is installed, limits of time and memory, an order by dependencies, and a cache.

Compiled lemmas are kept in the user's cache folder, each under a hash of its text, of the files it requires and of the
installation. Files that state something, the proof that puts the lemmas together and the verdict are always compiled.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from transformula.budget import report
from transformula.errors import InputError

#: Seconds of processor time and bytes of memory that one file may take.
MAX_SECONDS, MAX_MEMORY = 600, 6 << 30
#: Compiled files that the cache keeps.
MAX_CACHED = 400
#: The oldest Coq whose libraries have what Transformula's files require.
OLDEST = (8, 16)
INSTALL = "install Debian's packages coq and libcoq-interval (apt-get install coq libcoq-interval)"
_REQUIRED = re.compile(r"\bTransformula\.(\w+)")
_PASSED = re.compile(r"^Chars \d+ - (\d+) \[", re.MULTILINE)
_ERROR = re.compile(r'File "\./(\w+)\.v", line (\d+).*?Error:\s*(.*)', re.DOTALL)


class Compiled(NamedTuple):
    """A file that `coqc` has read: what it printed (None if it was refused, then why), processor time, peak memory."""

    name: str
    printed: str | None
    seconds: float
    memory: int
    why: str = ""
    cached: bool = False


@dataclass(frozen=True)
class Coq:
    """An installation: its compiler, its version and a fingerprint of what is installed."""

    path: str
    version: str
    fingerprint: str


def find_coqc() -> Coq:
    """The installed Coq; without it or the Interval library, one sentence on what to install."""
    found = shutil.which("coqc")
    if found is None:
        raise InputError(f"coqc is not installed: {INSTALL}")
    return _installed(found)


@lru_cache(maxsize=4)
def _installed(path: str) -> Coq:
    asked = [
        subprocess.run([path, o], capture_output=True, text=True, check=False) for o in ("--print-version", "-where")
    ]
    version, where = (run.stdout.strip() for run in asked)
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) < OLDEST:
        raise InputError(
            f"Coq {version.split(' ')[0] or 'of an unknown version'} is installed, 8.16 or later is needed"
        )
    tactic = Path(where) / "user-contrib" / "Interval" / "Tactic.vo"
    if not tactic.is_file():
        raise InputError(f"Coq's Interval library is not installed: {INSTALL}")
    return Coq(path, version.split(" ")[0], f"{version} {where} {hashlib.sha256(tactic.read_bytes()).hexdigest()}")


def required(text: str) -> set[str]:
    """The files of ours that a file requires."""
    return {f"{name}.v" for name in _REQUIRED.findall(text)}


@dataclass
class Workshop:
    """A private folder in which files are compiled after those that they require, several at a time."""

    files: Mapping[str, str]
    kept: frozenset[str] = frozenset()
    jobs: int = 2
    done: dict[str, Compiled] = field(default_factory=dict)

    @cached_property
    def coq(self) -> Coq:
        """The installation in use."""
        return find_coqc()

    def compile(self, place: Path, names: Iterable[str]) -> list[Compiled]:
        """Compile files in an order that their requirements allow; those that need a refused file are left out."""
        waiting, running = [name for name in names if name not in self.done], dict[Future[Compiled], str]()
        total = len(self.done) + len(waiting)
        with ThreadPoolExecutor(max(1, self.jobs)) as pool:
            while waiting or running:
                for name in [n for n in waiting if self._is_ready(n)]:
                    waiting.remove(name)
                    (place / name).write_text(self.files[name], encoding="utf-8")
                    running[pool.submit(self._built, place, name)] = name
                if not running:
                    break
                report("coqc " + " ".join(running.values()), len(self.done), total - len(self.done))
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    self.done[running.pop(ended)] = ended.result()
        return list(self.done.values())

    def _is_ready(self, name: str) -> bool:
        needed = required(self.files[name]) & set(self.files) - {name}
        return all(other in self.done and self.done[other].printed is not None for other in needed)

    def key(self, name: str) -> str:
        """A hash of all that a compiled file depends on."""
        needed = sorted(required(self.files[name]) & set(self.files) - {name})
        parts = [self.coq.fingerprint, name, self.files[name], *(self.key(other) for other in needed)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _built(self, place: Path, name: str) -> Compiled:
        """A file from the cache, else compiled, and then kept there."""
        result = Path(name).with_suffix(".vo")
        if name not in self.kept:
            return run_coqc(self.coq, place, name, self.files[name])
        cached = cache_folder() / f"{self.key(name)}.vo"
        if is_private(cached.parent) and cached.is_file() and cached.stat().st_uid == os.getuid():
            shutil.copy(cached, place / result)
            return Compiled(name, "", 0.0, 0, "", True)
        compiled = run_coqc(self.coq, place, name, self.files[name])
        if compiled.printed is not None:
            _keep(place / result, cached)
        return compiled


def cache_folder() -> Path:
    """The folder of compiled files."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "transformula" / "coq"


def is_private(folder: Path) -> bool:
    """Whether a folder is the user's own, and no other user may write there."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _keep(result: Path, cached: Path) -> None:
    """Put a compiled file into the cache, unless the folder is not ours alone; the oldest ones go."""
    try:
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(cached.parent):
            with tempfile.NamedTemporaryFile(dir=cached.parent, delete=False) as file:
                file.write(result.read_bytes())
            os.replace(file.name, cached)
            by_age = sorted(cached.parent.glob("*.vo"), key=lambda path: path.stat().st_mtime)
            for old in by_age[:-MAX_CACHED]:
                old.unlink(missing_ok=True)
    except OSError:
        return  # a cache that cannot be written costs time only


def run_coqc(coq: Coq, place: Path, name: str, text: str) -> Compiled:
    """Compile one file under the limits."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))

    asks = "\nPrint Assumptions" in text  # what such a file prints is read; of any other it is how far Coq has come
    command = [coq.path, *([] if asks else ["-time"]), "-q", "-Q", ".", "Transformula", "-w", "none", name]
    # a search path of the user's could put other libraries before the installed ones
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COQ", "ROCQ"))}
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as failed:
        running = subprocess.Popen(
            command, cwd=place, stdout=printed, stderr=failed, env=environment, preexec_fn=limits
        )
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        failed.seek(0)
        accepted, seconds, said = running.returncode == 0, used.ru_utime + used.ru_stime, printed.read()
        why = "" if accepted else refusal(running.returncode, failed.read(), text, said)
        return Compiled(name, said if accepted else None, seconds, used.ru_maxrss * 1024, why)


def refusal(code: int, said: str, text: str, passed: str = "") -> str:
    """Why a file was refused: in which lemma Coq found an error or met a limit, and what it said.

    ``passed`` has a line for each sentence that Coq has accepted, with its place.
    """
    ends = [int(end) for end in _PASSED.findall(passed)]
    if code < 0:
        return f"{_lemma(text[: max(ends, default=0)])}: it took over {MAX_SECONDS} s of processor time, or was killed"
    if "Out of memory" in said or "Stack overflow" in said:
        return f"{_lemma(text[: max(ends, default=0)])}: it needs more than {MAX_MEMORY >> 30} GiB of memory"
    found = _ERROR.search(said)
    if found is None:
        return " ".join(said.split())[:200]
    return f"{_lemma(chr(10).join(text.splitlines()[: int(found[2])]))}: {' '.join(found[3].split())[:200]}"


def _lemma(before: str) -> str:
    """The lemma that a part of a file ends in."""
    lemmas = re.findall(r"^(?:Lemma|Theorem|Definition) (\w+)", before, re.MULTILINE)
    return f"in {lemmas[-1] if lemmas else 'its first lines'}"
