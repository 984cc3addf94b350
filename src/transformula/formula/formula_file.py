"""A model in one readable file: comments, box and tolerance, named values, formulas.

::

    # Magnus formula: dew point in degrees Celsius
    on: T=0..60, RH=1..100
    eps: 1e-4
    s = log(RH/100) + 17.625*T/(243.04 + T)
    243.04*s/(17.625 - s)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from transformula.errors import InputError
from transformula.formula.given_box import CONTINUED, goes_on

_SETTING = re.compile(r"\s*(\w+)\s*:(?!=)(.*)")
_KEYS = ("on", "eps", "rel", "pointwise", "dtype", "construction")


@dataclass(frozen=True)
class FormulaFile:
    """Named values and formulas, a statement each, and the settings of the file by name."""

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
        return cls(formulas, settings)

    def number(self, key: str) -> float | None:
        """A setting that is a number, or None."""
        if key not in self.settings:
            return None
        try:
            return float(self.settings[key])
        except ValueError:
            raise InputError(f"the file's {key} is {self.settings[key][:40]!r}, not a number") from None
