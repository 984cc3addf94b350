"""Fits of expressions: tables cached on disk, and independent tables fitted at the same time by lent workers.

A cached file is never trusted. Whatever table it holds, the model made of it is proven anew, so a wrong file can cause
a refusal but no false certificate. Files may be deleted at any time and shared between processes: each is written
whole or not at all. The name of a file is a hash of everything that a fit depends on, the code included, and it keeps
the work that the fit took, which counts again: the result is the same with the files and without. The folder is
``TRANSFORMULA_CACHE``, or ``transformula/tables`` in the user's cache; ``off`` disables the cache.

Workers fit each table as if there were plenty of budget left. Where there is not when its turn comes, the table is
fitted here, within its allowance. So the tables, and their work, are the same with workers and without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

import transformula.compiler.tables as here
from transformula.budget import OutOfTime, checkpoint, counted, left, lent, limited, report, spend, time_left
from transformula.compiler import policy
from transformula.compiler.tables.fit_task import PLENTY, Allowance, CannotFit
from transformula.compiler.tables.smallest_table import allowance, fit_table
from transformula.compiler.tables.softmax_table import FittedTable
from transformula.errors import RefutedError, SavingError, TransformulaError
from transformula.files import write_file
from transformula.formula import evaluation
from transformula.kernel.syntax.expression import Expr, fold

VARIABLE = "TRANSFORMULA_CACHE"
MAX_FILES = 10_000  # of the cache, about 20 MB; beyond it the older half is deleted

Fitted = TypeVar("Fitted")


class _CachedFit(NamedTuple):
    """The work of a fit, the message of `CannotFit` if it failed, and the best table found."""

    work: float
    complaint: str | None
    table: FittedTable | None


def folder() -> Path | None:
    """Folder of the cached tables; None if there is no cache."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return None if given in ("", "off") else Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # there is no home
        return (Path(base) if base else Path.home() / ".cache") / "transformula" / "tables"
    return None


def fit_expression(
    expr: Expr, name: str, lower: float, upper: float, eps: float, dtype: str, *,
    linear: bool = True, max_tokens: int = 400, most: Allowance = PLENTY,
) -> FittedTable:  # fmt: skip
    """`fit_table` of an expression in one variable, ``name``, or its cached result or failure."""

    def fit() -> FittedTable:
        return fit_table(
            lambda u: evaluation.evaluate_accurately(expr, [name], [u]),
            lower, upper, eps, dtype, linear=linear, max_tokens=max_tokens, most=most,
        )  # fmt: skip

    place = folder()
    if place is None:
        return fit()
    numbers = [float(number).hex() for number in (lower, upper, eps)]
    task = repr((_code(), _digest(expr), name, *numbers, dtype, linear, max_tokens, *most))
    path = place / f"{hashlib.sha256(task.encode()).hexdigest()}.json"
    known = _read(path)
    if known is not None:
        spend(known.work)
    else:
        known = _tried(fit)
        _write(path, known)
    if known.complaint is not None:
        raise CannotFit(known.complaint, known.table)
    assert known.table is not None
    return known.table


def _tried(fit: Callable[[], FittedTable]) -> _CachedFit:
    before = counted()
    try:
        table = fit()
    except CannotFit as failure:
        return _CachedFit(counted() - before, str(failure), failure.best)
    return _CachedFit(counted() - before, None, table)


def _digest(expr: Expr) -> str:
    """A hash of the tree; the text of one with shared parts may be endless."""
    return fold(expr, lambda node, args: hashlib.sha256(repr((node.op, node.value, args)).encode()).hexdigest())


@cache
def _code() -> str:
    """A hash of the modules that fit, of the stored scores and squares, and of the modules they depend on."""
    kinds = ("*.py", "*.json")
    own = sorted(path for base in here.__path__ for kind in kinds for path in Path(base).glob(kind))
    digest = hashlib.sha256(np.__version__.encode())
    for source in [*own, Path(policy.__file__), Path(evaluation.__file__)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> _CachedFit | None:
    """A cached fit; None if there is no such file or it makes no sense."""
    try:
        data = json.loads(path.read_bytes())
        table = None if data["table"] is None else _table(data["table"])
        known = _CachedFit(float(data["work"]), data["complaint"], table)
        os.utime(path)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, RefutedError):
        return None
    sound = known.table is not None or isinstance(known.complaint, str)
    return known if sound and 0 <= known.work < np.inf else None


def _table(data: dict[str, Any]) -> FittedTable:
    """A table from its stored fields; kernel and constructor refuse shapes and numbers that make no sense."""
    slopes, offsets, values = (np.array(data.pop(name), dtype=np.float64) for name in ("slopes", "offsets", "values"))
    numbers = {name: float(data[name]) for name in ("linear", "error_estimate", "rounding_estimate")}
    if not math.isfinite(numbers["linear"]):
        raise ValueError("a number that is not finite")
    return FittedTable((slopes,), (offsets,), values, **numbers, dtype=data["dtype"])


def _write(path: Path, found: _CachedFit) -> None:
    """Store a result, if that is possible."""
    table = None
    if found.table is not None:
        slopes, offsets = found.table.slopes[0].tolist(), found.table.offsets[0].tolist()
        table = asdict(found.table) | {"slopes": slopes, "offsets": offsets, "values": found.table.values.tolist()}
    with contextlib.suppress(OSError, SavingError):
        write_file(path, json.dumps(found._replace(table=None)._asdict() | {"table": table}), parents=True)
        _tidy(path.parent)


def _tidy(place: Path) -> None:
    names = [name for name in os.listdir(place) if name.endswith(".json")]
    if len(names) > MAX_FILES:
        aged = sorted((place / name for name in names), key=_age)
        for path in aged[: len(aged) // 2]:
            path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def fit_all(
    fit: Callable[..., Fitted],
    tasks: Sequence[tuple[Any, ...]],
    doubtful: Callable[[], bool] = lambda: False,
    again: Callable[..., Fitted] | None = None,
    loose: bool = False,
) -> Iterator[Fitted]:
    """Results of ``fit``, a function of a module, for each task and an `Allowance`, in order.

    ``doubtful`` tells whether a fit has failed by then, ``again`` is the same as ``fit`` with a memory. Tables that are
    ``loose`` need not be small.
    """
    found: dict[int, tuple[Fitted, float]] = {}
    if len(tasks) > 1 and allowance(doubtful()) == PLENTY and not loose:
        for index, answer in ahead(partial(_elsewhere, fit), ((time_left(), task) for task in tasks)):
            checkpoint()
            if answer is not None:
                found[index] = answer
            report("solving", len(found), len(tasks) - len(found))
    for index, task in enumerate(tasks):
        most = allowance(doubtful())
        most = most._replace(shrinking=0.0) if loose else most
        # a fit that took only a small part of the remaining budget has met no limit, wherever it ran
        if index in found and most == PLENTY and found[index][1] <= 0.25 * left():
            spend(found[index][1])
            yield found[index][0]
        else:
            report("solving", index, len(tasks) - index)
            yield (again or fit)(*task, most)


def ahead(function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Index and value of each task that lent workers completed, as they are ready; nothing without workers.

    Tasks are taken as workers come free.
    """
    engine = lent.get()
    if engine is None:
        return
    from transformula.cluster.engines import EngineError

    try:
        for outcome in engine.run(function, tasks):
            if outcome.error is None:
                yield outcome.index, outcome.value
    except EngineError:
        pass  # the caller computes the missing tasks


def _elsewhere(fit: Callable[..., Fitted], given: tuple[float | None, tuple[Any, ...]]) -> Any:
    """The table and its work; None for a failure, which is left to the caller to repeat and report."""
    seconds, task = given
    try:
        with limited(math.inf, seconds):
            before = counted()
            return fit(*task, PLENTY), counted() - before
    except (TransformulaError, OutOfTime):
        return None
