"""Forged folders (`forging`): what the isolated checker verifies is true, and every check ends within its limits."""

from __future__ import annotations

import forging
from fuzz.cases import Case, fuzzer
from fuzz.honest import NAMES, honest


@fuzzer
def folders(case: Case) -> None:
    """Forge a folder, have it judged, and judge the judgement."""
    found = forging.one(honest(*NAMES), case.seed)
    case.given = f"{found['base']}: {found['done']}"
    case.check(
        f"a folder is {'refused' if found['status'] == 'refused' else 'verified and true'}",
        found["status"] in ("refused", "true"),
        found,
    )
