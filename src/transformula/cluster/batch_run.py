"""Batches: many formulas, each compiled, verified, exported or reported by some worker, with an outcome of its own.

The calling process reads the table, hands out jobs, writes the folders and keeps the journal; workers compute. A
folder's bytes depend on its request alone, not on the worker or the time. A folder is written whole or not at all, and
its journal line after it: a line without its folder means that the folder was removed, and a folder without its line is
made again. So a killed batch can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from transformula.budget import report
from transformula.cluster.batch_jobs import VERBS, Done, Job, Request, read_requests, work
from transformula.cluster.batch_summary import SUMMARIES, Summary, write_summary
from transformula.cluster.engines import Engine, EngineError, Outcome, opened_engine
from transformula.compiler.certify import stated
from transformula.compiler.driver import parse_formula
from transformula.errors import InputError, SavingError, TransformulaError
from transformula.files import as_path, check_folder, write_file
from transformula.kernel.folder.description import CERTIFICATE_FILE, MAX_BYTES, MODEL_FILE
from transformula.kernel.folder.model_files import read_packed, read_text
from transformula.model_folder import ONNX_FILE, REPORT_FILE, write_folder
from transformula.model_folder import check_folder as check_model_folder
from transformula.optional import require

#: The journal: one line of JSON for each finished request.
JOURNAL = "batch.jsonl"
#: Names of temporary files and folders, which a killed batch leaves behind.
_STAGING = re.compile(r"\.transformula-[0-9a-f]{16}")
#: Files that the verbs export and report add to a folder, and the packages they need.
_ADDED = {"export": ONNX_FILE, "report": REPORT_FILE}
_NEEDS = {"export": ("onnx",), "report": ("matplotlib",)}
#: Types of errors that say nothing about the formula: a resumed batch tries such a row again.
_TRANSIENT = ("EngineError", "InternalFault", "MemoryError", "SavingError", "WorkerLostError")


class BatchInterrupted(TransformulaError):
    """Ctrl-C ended a batch; finished rows are kept."""

    exit_code = 130


def batch(
    formulas: Iterable[Mapping[str, Any]],
    out: str | Path,
    jobs: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    verb: str = "compile",
    places: Sequence[str] | None = None,
    force: bool = False,
) -> Summary:
    """Compile many formulas into one folder each, on many processes; a formula that fails is listed and not fatal.

    Parameters
    ----------
    formulas : iterable of mappings
        ``name``, ``formula`` and ``box`` (or ``on``), and the options of `compile`: ``eps`` or ``rel``, ``dtype``,
        ``construction``. Missing and empty ones have their defaults.
    out : path
        Folder for a model folder of each name, summary.csv, summary.json, summary.html and the journal, batch.jsonl.
    jobs : int, optional
        Processes of this machine; by default one for each core.
    scheduler : str, optional
        The address of a Dask scheduler, whose workers then do the work.
    resume : bool
        Keep the rows that an earlier batch in ``out`` has finished, where the request is unchanged.
    verb : {"compile", "verify", "export", "report"}
        The task. All but ``compile`` use existing folders, and compile only missing ones.
    places : sequence of str, optional
        Position of each formula in its source, for messages.
    force : bool
        Replace a folder in ``out`` that holds another formula's model; without it such a formula is listed as failed.

    Examples
    --------
    >>> import tempfile
    >>> asked = [{"name": "wave", "formula": "sin(x)", "box": "x=0..1", "eps": 1e-3},
    ...          {"name": "pole", "formula": "1/x", "box": "x=-1..1"}]
    >>> with tempfile.TemporaryDirectory() as where:
    ...     summary = batch(asked, where, jobs=1)
    >>> [row.name for row in summary.rows if row.proven], [row.name for row in summary.rows if row.error]
    (['wave'], ['pole'])
    """
    if verb not in VERBS:
        raise InputError(f"unknown verb {verb!r}: choose {', '.join(VERBS)}")
    requests = read_requests(formulas, places)
    out = as_path(out)
    require(verb, *_NEEDS.get(verb, ()))
    check_folder(out)
    with opened_engine(jobs, scheduler) as engine:
        return _Batch(requests, out, verb, force).run(engine, resume)


class _Batch:
    """One run of a batch."""

    def __init__(self, requests: list[Request], out: Path, verb: str, force: bool) -> None:
        self.requests = requests
        self.out = out
        self.verb = verb
        self.force = force
        self.version = str(import_module(__name__.partition(".")[0]).__version__)

    def run(self, engine: Engine, resume: bool) -> Summary:
        """Hand out unfinished requests; the summary is written also after Ctrl-C or the loss of a cluster."""
        start = time.perf_counter()
        with Journal(self.out, forget=self.verb == "compile" and not resume) as journal:
            todo = [one for one in self.requests if not (resume and self._finished(one, journal))]
            kept = len(self.requests) - len(todo)
            workers = engine.workers
            stopped: BaseException | None = None
            outcomes = engine.run(work, (self._job(one, journal) for one in todo))
            done: set[str] = set()
            try:
                report("formulas", 0, len(todo))
                for outcome in outcomes:
                    request = todo[outcome.index]
                    self._settle(request, outcome, journal)
                    done.add(request.name)
                    report("formulas", len(done), len(todo) - len(done))
            except (KeyboardInterrupt, EngineError) as stop:
                stopped = stop
            finally:
                outcomes.close()  # type: ignore[attr-defined]
            left = {one.name for one in todo} - done
            lines = [journal.lines[one.name] for one in self.requests if one.name not in left]
            summary = Summary.of(lines, self.out, self.verb, kept, workers, time.perf_counter() - start)
            write_summary(summary)
        if stopped is not None:
            so_far = f"{len(lines)} of {len(self.requests)} formulas are finished and in {self.out}"
            kind = EngineError if isinstance(stopped, EngineError) else BatchInterrupted
            raise kind(f"{str(stopped) or 'interrupted'}: {so_far}; resume to go on with the others")
        return summary

    def _line(self, request: Request, journal: Journal) -> dict[str, Any] | None:
        """The journal's line about the same request."""
        line = journal.lines.get(request.name)
        return line if line is not None and line.get("asked") == request.asked else None

    def _finished(self, request: Request, journal: Journal) -> bool:
        line = self._line(request, journal)
        if line is None or line.get("version") != self.version:
            return False
        if self.verb not in ("compile", line.get("verb")):
            return False
        folder = self.out / request.name
        if line.get("error"):
            return line.get("verb") == self.verb and line.get("kind") not in _TRANSIENT
        if self.verb in _ADDED and not (folder / _ADDED[self.verb]).is_file():
            return False
        return is_whole(folder, line.get("certificate"))

    def _job(self, request: Request, journal: Journal) -> Job:
        line, folder = self._line(request, journal), self.out / request.name
        try:
            if self.verb == "compile" or line is None or line.get("certificate") is None or not has_files(folder):
                self._check_place(request, folder)
                return Job(request, self.verb)
            return Job(request, self.verb, read_packed(folder), read_text(folder, CERTIFICATE_FILE))
        except InputError as error:
            return Job(request, self.verb, refusal=error)

    def _check_place(self, request: Request, folder: Path) -> None:
        """Refuse the folder of another formula before work is spent on this one."""
        if folder.exists():
            check_model_folder(folder, stated(parse_formula(request.formula, request.box)), self.force)

    def _settle(self, request: Request, outcome: Outcome, journal: Journal) -> None:
        """Write a folder, then its line in the journal."""
        done = outcome.value if isinstance(outcome.value, Done) else Done()
        if outcome.error is not None:
            done.error, done.kind = str(outcome.error), type(outcome.error).__name__
        before = None if self.verb == "compile" else self._line(request, journal)
        digest = None if before is None else before.get("certificate")
        folder = self.out / request.name
        try:
            if done.folder is not None:
                write_folder(folder, done.folder, self.force)
                digest = certificate_digest(done.folder[CERTIFICATE_FILE])
            for name, data in done.added.items():
                write_file(folder / name, data)
        except SavingError as error:
            done.error, done.kind = str(error), type(error).__name__
            done.facts = {}
        journal.add(
            {
                "name": request.name,
                "asked": request.asked,
                "verb": self.verb,
                "version": self.version,
                "certificate": digest,
                "facts": done.facts,
                "seconds": round(done.seconds, 4),
                "error": done.error,
                "kind": done.kind,
            }
        )


def _check_out(out: Path) -> None:
    """Refuse a folder in which a batch would replace files that are not a batch's."""
    if (out / JOURNAL).exists():
        return
    if taken := next((name for name in (*SUMMARIES, MODEL_FILE) if (out / name).exists()), None):
        raise SavingError(f"{out} holds {taken}, which no batch wrote: choose another folder for --out")


class Journal:
    """Lines of batch.jsonl by name, the last one of each; locked against other batches while it is open."""

    def __init__(self, out: Path, forget: bool) -> None:
        _check_out(out)
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._file = open(out / JOURNAL, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise SavingError(f"cannot write {out / JOURNAL}: {error.strerror or error}") from None
        try:
            _lock(self._file, out)
            if forget:
                self._file.truncate(0)
            self.lines = self._read()
            _clear(out)
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> dict[str, dict[str, Any]]:
        lines: dict[str, dict[str, Any]] = {}
        text = "\n"
        self._file.seek(0)
        for text in self._file:
            try:
                line = json.loads(text)
                lines[line["name"]] = line
            except (ValueError, KeyError, TypeError):
                continue  # cut off by a kill
        if not text.endswith("\n"):
            self._file.write("\n")
        return lines

    def add(self, line: dict[str, Any]) -> None:
        """Write a line and flush it."""
        self.lines[line["name"]] = line
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _lock(file: IO[str], out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two batches in one folder are then the user's to avoid
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SavingError(f"another batch is writing to {out}: wait for it, or choose another folder") from None


def _clear(out: Path) -> None:
    """Remove the temporary files of a killed batch."""
    for path in out.iterdir():
        if _STAGING.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def certificate_digest(contents: bytes | str) -> str:
    """The hash of a certificate, which contains the hashes of the other files."""
    return hashlib.sha256(contents.encode() if isinstance(contents, str) else contents).hexdigest()


def has_files(folder: Path) -> bool:
    """Whether all files of a model exist."""
    return all((folder / name).is_file() for name in MAX_BYTES)


def is_whole(folder: Path, digest: str | None) -> bool:
    """Whether all files of a model exist, with the certificate that the journal names."""
    try:
        return has_files(folder) and certificate_digest((folder / CERTIFICATE_FILE).read_bytes()) == digest
    except OSError:
        return False
