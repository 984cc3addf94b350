"""Folders that keep a check busy: each ends with a verdict, within the limits of its process."""

from __future__ import annotations

import forging
from bombs import BOMBS
from fuzz.cases import Case, fuzzer
from fuzz.honest import honest
from judge import MEGABYTES, SECONDS

NAMES = ("line", "sine", "steps", "product32")


@fuzzer
def busy(case: Case) -> None:
    """Put one bomb into an honest folder, and have it judged."""
    rng, kind, size = case.rng, list(BOMBS)[case.seed % len(BOMBS)], case.rng.random()
    folder = honest(*NAMES)[rng.choice(NAMES)].copy()
    folder.body.update(BOMBS[kind](rng, size))
    case.given = f"{kind} of size {size:.2f} in {folder.body['construction']}: {str(folder.body['formulas'])[:120]}"
    answer = forging.judge(folder.files())
    case.check("a check ends with a verdict", "the check stopped" not in answer["reason"], answer)
    case.check(f"a check takes no more than {SECONDS} s", answer["seconds"] <= SECONDS, answer)
    case.check(f"a check takes no more than {MEGABYTES:.0f} MB", answer["megabytes"] <= MEGABYTES, answer)
