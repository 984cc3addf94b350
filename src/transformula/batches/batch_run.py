"""Many formulas, each compiled, verified, exported or reported by some worker, and each with an outcome of its own.

The process that was called reads the table, gives out jobs, writes the folders and keeps the journal; workers compute.
A folder's bytes depend on its request alone, not on who made it or when.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from transformula.batches.batch_jobs import Done, Job, work
from transformula.batches.batch_requests import VERBS, Request, read_requests
from transformula.batches.batch_summary import Summary, write_summary
from transformula.batches.journal import Journal, certificate_digest, has_files, is_whole
from transformula.cluster import Engine, EngineError, Outcome, opened_engine
from transformula.compiler.certify import stated
from transformula.compiler.driver import parse_formula
from transformula.errors import InputError, SavingError, TransformulaError
from transformula.files import as_path, check_folder, write_file
from transformula.kernel.folder.description import CERTIFICATE_FILE
from transformula.kernel.folder.model_files import read_packed, read_text
from transformula.model_folder import ONNX_FILE, REPORT_FILE, write_folder
from transformula.model_folder import check_folder as check_model_folder
from transformula.optional import require
from transformula.progress import report

#: What export and report add to a folder, and the packages they need.
_ADDED = {"export": ONNX_FILE, "report": REPORT_FILE}
_NEEDS = {"export": ("onnx",), "report": ("matplotlib",)}
#: Failures that say nothing about the formula: such a row is tried again when a batch is resumed.
_PASSING = ("EngineError", "InternalFault", "MemoryError", "SavingError", "WorkerLostError")


class BatchInterrupted(TransformulaError):
    """Somebody pressed Ctrl-C; what is finished is kept."""

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
        ``name``, ``formula`` and ``box`` (or ``on``), and what `compile` takes: ``eps`` or ``rel``, ``dtype``,
        ``construction``. What is missing or empty has its default.
    out : path
        Gets a folder for each name, summary.csv, summary.json, summary.html and batch.jsonl, the list of what is done.
    jobs : int, optional
        Processes of this machine; by default one for each core.
    scheduler : str, optional
        The address of a Dask scheduler, whose workers then do the work.
    resume : bool
        Keep what an earlier batch in ``out`` has finished, as long as it was asked for in the same words.
    verb : {"compile", "verify", "export", "report"}
        What to do. All but ``compile`` take the folders that are there, and compile only those that are missing.
    places : sequence of str, optional
        Where each formula stands, for messages.
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
    requests, out = read_requests(formulas, places), as_path(out)
    require(verb, *_NEEDS.get(verb, ()))
    check_folder(out)
    with opened_engine(jobs, scheduler) as engine:
        return _Batch(requests, out, verb, force).run(engine, resume)


class _Batch:
    """One run."""

    def __init__(self, requests: list[Request], out: Path, verb: str, force: bool) -> None:
        self.requests, self.out, self.verb, self.force = requests, out, verb, force
        self.version = str(import_module(__name__.partition(".")[0]).__version__)

    def run(self, engine: Engine, resume: bool) -> Summary:
        """Give out what is not finished; the summary is written also after Ctrl-C, or when a cluster goes away."""
        start = time.perf_counter()
        with Journal(self.out, forget=self.verb == "compile" and not resume) as journal:
            todo = [one for one in self.requests if not (resume and self._finished(one, journal))]
            kept, workers = len(self.requests) - len(todo), engine.workers
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
        """What is written down about the very same request."""
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
            return line.get("verb") == self.verb and line.get("kind") not in _PASSING
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
        """Write a folder, then the line that says so."""
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
            done.error, done.kind, done.facts = str(error), "SavingError", {}
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
