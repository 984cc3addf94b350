"""Arguments and options that several verbs share, and how their values are read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cluster.engines import workers
from transformula.errors import InputError, NotProvenError, TransformulaError
from transformula.formula.given_box import CONTINUED, goes_on
from transformula.kernel.syntax.parsing import MAX_LENGTH
from transformula.model import Model
from transformula.proven import verify_folder

_SETTING = re.compile(r"\s*(\w+)\s*:(?!=)(.*)")
_KEYS = ("on", "eps", "rel", "pointwise", "dtype", "construction")


@dataclass(frozen=True)
class FormulaFile:
    """A model in one readable file: settings by name, then named values and formulas, a statement each.

    ::

        # Magnus formula: dew point in degrees Celsius
        on: T=0..60, RH=1..100
        eps: 1e-4
        s = log(RH/100) + 17.625*T/(243.04 + T)
        243.04*s/(17.625 - s)
    """

    formulas: list[str]
    settings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, source: str) -> FormulaFile:
        """Read a file's text; ``source`` is its name in messages.

        Examples
        --------
        >>> FormulaFile.of("on: x=0..1  # a box\\n2*x", "f")
        FormulaFile(formulas=['2*x'], settings={'on': 'x=0..1'})
        """
        settings: dict[str, str] = {}
        formulas: list[str] = []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.partition("#")[0].strip()
            found = _SETTING.fullmatch(line)
            if found is None:
                if formulas and goes_on(line):
                    raise InputError(f"{source}, line {number}: {line!r} {CONTINUED}")
                formulas += [line] * bool(line)
                continue
            key, value = found[1], found[2].strip()
            if key not in _KEYS:
                raise InputError(f"{source}, line {number}: {key!r} is no setting: use {', '.join(_KEYS)}")
            if key in settings and key != "on":
                raise InputError(f"{source}, line {number}: {key} is given twice")
            settings[key] = f"{settings[key]}, {value}" if key in settings else value
        if not formulas:
            raise InputError(f"{source} has no formula in it")
        for key in _KEYS:  # a named value that is used may be called eps
            if any(re.match(rf"{key}\s*=(?!=)", line) for line in formulas) and not any(
                re.search(rf"\b{key}\b(?!\s*=)", line) for line in formulas
            ):
                raise InputError(
                    f"{source} gives {key} a value that no formula uses: write '{key}: ..' for the setting"
                )
        return cls(formulas, settings)

    def number(self, key: str) -> float | None:
        """A setting that is a number, or None."""
        if key not in self.settings:
            return None
        try:
            return float(self.settings[key])
        except ValueError:
            raise InputError(f"the file's {key} is {self.settings[key][:40]!r}, not a number") from None


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Folder = Annotated[Path, typer.Argument(help="A model folder, as written by compile --out.")]
On = typer.Option(help="The box: 'x=0..2*pi, y1..y9=-3..3, c=299792458'.")
Relative = Annotated[Optional[float], typer.Option(help="Tolerance relative to the largest |formula| on the box.")]
DTYPE = typer.Option(help="Float format of weights and claim: float64 (the default) or float32.")
DType = Annotated[str, DTYPE]
ModelOut = Annotated[Optional[Path], typer.Option(help="Folder to save the model in.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the model of another formula in that folder.")]
Jobs = Annotated[Optional[int], typer.Option(help="Processes on this machine that fit tables in parallel.")]
Scheduler = Annotated[
    Optional[str], typer.Option(help="Dask scheduler whose workers do the work, like tcp://10.0.0.1:8786.")
]
FORMULAS = typer.Argument(help="One formula or several (outputs); - reads them from stdin.")

#: The argument that stands for standard input.
_STDIN = "-"


def lent_workers(jobs: int | None, scheduler: str | None) -> Any:
    """A context with workers for the proofs inside it, if any were asked for."""
    return nullcontext() if jobs is None and scheduler is None else workers(jobs, scheduler)


def given_formulas(words: list[str], file: Path | None = None) -> FormulaFile:
    """The formulas of the command line, of a file, or of standard input for a single ``-``."""
    for word in words:
        if word.startswith("--"):
            raise InputError(f"unknown option {word.partition('=')[0]}: see --help")
    if file is not None and words:
        raise InputError("give formulas either as arguments or in --file, not both")
    if file is None and not words:
        raise InputError("there is no formula: give one, or --file FILE, or - to read it from stdin")
    if file is None and words != [_STDIN]:
        return FormulaFile(words)
    source = "standard input" if file is None or str(file) == _STDIN else str(file)
    return FormulaFile.of(_read_text(file, source), source)


def _read_text(file: Path | None, source: str) -> str:
    try:
        if file is None or str(file) == _STDIN:
            data = sys.stdin.buffer.read(2 * MAX_LENGTH + 1)
        else:
            with open(file, "rb") as handle:
                data = handle.read(2 * MAX_LENGTH + 1)
        if len(data) > 2 * MAX_LENGTH:  # what is left of a text that was cut short may be another formula
            raise InputError(f"{source} is too long: at most {2 * MAX_LENGTH} bytes are read")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{source} is not a text in UTF-8") from None
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror or error}") from None


@contextmanager
def loaded(folder: Path) -> Iterator[Model]:
    """A model to work with: if it breaks the code, the folder is blamed only where the checker refuses it too."""
    try:
        yield Model.load(folder)
    except (TransformulaError, OSError, MemoryError):
        raise
    except Exception:
        result = verify_folder(folder)
        if result.verified:
            raise
        raise NotProvenError(f"{folder} does not verify: {'; '.join(result.reasons)}") from None
