"""Tables that were fitted before, kept on disk: compiling a formula again is then little more than its proof.

A file is never trusted. Whatever table it holds, the model that is made of it is proven anew, so a wrong file can
cause a refusal and no false certificate. Files may be deleted at any time and shared between processes: each is written
whole or not at all (`saving`). The name of a file is a hash of all that a fit depends on, the code included, and
it keeps the work that the fit took, which counts again: the result is the same with the files and without.

The folder is ``TRANSFORMULA_CACHE``, or ``transformula/tables`` in the user's cache; ``off`` keeps nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import transformula.compiler.tables as here
from transformula.budget import counted, spend
from transformula.compiler.tables.fit_task import PLENTY, Allowance, CannotFit
from transformula.compiler.tables.smallest_table import fit_table
from transformula.compiler.tables.softmax_table import Table
from transformula.errors import SavingError
from transformula.files import write_file
from transformula.formula import evaluation as numeric
from transformula.kernel.syntax.expression import Expr, fold

VARIABLE = "TRANSFORMULA_CACHE"
#: About 20 MB. Beyond it the files that were used longest ago go, half of them at once.
MAX_FILES = 10_000
MAX_BYTES = 1_000_000  # of one file
_ARRAYS = ("slopes", "offsets", "values")


def folder() -> Path | None:
    """Where tables are kept; None if they are not."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return None if given in ("", "off") else Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # there is no home
        return (Path(base) if base else Path.home() / ".cache") / "transformula" / "tables"
    return None


def fit_expression(
    expr: Expr,
    name: str,
    lower: float,
    upper: float,
    eps: float,
    dtype: str,
    *,
    linear: bool = True,
    max_tokens: int = 400,
    most: Allowance = PLENTY,
) -> Table:
    """`fit_table` of an expression in one variable, ``name``; or what it found, or missed, when it was asked before."""
    task = (
        _digest(expr),
        name,
        float(lower).hex(),
        float(upper).hex(),
        float(eps).hex(),
        dtype,
        linear,
        max_tokens,
        *most,
    )
    return _kept(
        task,
        lambda: fit_table(
            lambda u: numeric.evaluate_accurately(expr, [name], [u]),
            lower,
            upper,
            eps,
            dtype,
            linear=linear,
            max_tokens=max_tokens,
            most=most,
        ),
    )


def _digest(expr: Expr) -> str:
    """A hash of the tree; the text of one with shared parts may be endless."""
    return fold(expr, lambda node, args: hashlib.sha256(repr((node.op, node.value, args)).encode()).hexdigest())


def _kept(task: tuple[object, ...], fit: Callable[[], Table]) -> Table:
    place = folder()
    if place is None:
        return fit()
    path = place / f"{hashlib.sha256(repr((_code(), task)).encode()).hexdigest()}.json"
    known = _read(path)
    if known is not None:
        work, complaint, table = known
        spend(work)
    else:
        before = counted()
        complaint, table = None, None
        try:
            table = fit()
        except CannotFit as failure:
            complaint, table = str(failure), failure.best
        _write(path, counted() - before, complaint, table)
    if complaint is not None:
        raise CannotFit(complaint, table)
    assert table is not None
    return table


@cache
def _code() -> str:
    """A hash of the modules that fit, of what they start from, and of what they stand on."""
    kinds = ("*.py", "*.json")
    own = sorted(path for base in here.__path__ for kind in kinds for path in Path(base).glob(kind))
    sources = [*own, Path(numeric.__file__)]
    digest = hashlib.sha256(np.__version__.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[float, str | None, Table | None] | None:
    """Work, what `CannotFit` said if it did, and the table; None if there is no such file or it makes no sense."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        data = json.loads(path.read_bytes())
        complaint = data["complaint"]
        table = None if data["table"] is None else _table(data["table"])
        if not 0 <= data["work"] < np.inf or not (table is not None or isinstance(complaint, str)):
            return None
        os.utime(path)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return float(data["work"]), complaint, table


def _table(data: dict[str, Any]) -> Table:
    arrays: dict[str, Any] = {name: np.array(data[name], dtype=np.float64) for name in _ARRAYS}
    numbers = {f.name: data[f.name] for f in fields(Table) if f.name not in _ARRAYS}
    shapes = {a.shape for a in arrays.values()}
    if len(shapes) != 1 or arrays["slopes"].ndim != 1 or not arrays["slopes"].size:
        raise ValueError("arrays of one length")
    if not all(np.isfinite(a).all() for a in arrays.values()) or not np.isfinite(numbers["linear"]):
        raise ValueError("finite numbers")
    return Table(**arrays, **numbers)


def _write(path: Path, work: float, complaint: str | None, table: Table | None) -> None:
    """Keep a result, if that is possible."""
    shown = None if table is None else {**asdict(table), **{name: getattr(table, name).tolist() for name in _ARRAYS}}
    text = json.dumps({"work": work, "complaint": complaint, "table": shown})
    with contextlib.suppress(OSError, SavingError):
        write_file(path, text, parents=True)
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
