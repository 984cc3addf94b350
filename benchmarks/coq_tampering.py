"""Every tampered input of tests/support/coq_tampering.py, and which line of defence refuses it.

``python benchmarks/coq_tampering.py`` prints the table. ``--cheap`` leaves out those that reach `coqc`, which take
minutes; ``--coqc`` takes no others.
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.coq_tampering import caught, tamperings

DEFENCES = ("hash", "kernel", "export", "transcription", "rules", "coqc", "accepted")


def main(arguments: list[str]) -> None:
    """Try all, and count."""
    unwanted = [True] * ("--cheap" in arguments) + [False] * ("--coqc" in arguments)
    chosen = [t for t in tamperings() if t.needs_coqc not in unwanted]
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for tampering in chosen:
        with tempfile.TemporaryDirectory() as place:
            found = caught(tampering, place)
        table[tampering.where][found] += 1
        if found == "accepted":
            print("ACCEPTED:", tampering, flush=True)
    print("| tampered | inputs | " + " | ".join(DEFENCES) + " |\n| --- |" + " ---: |" * (len(DEFENCES) + 1))
    for where, counts in table.items():
        cells = [str(counts[defence] or "") for defence in DEFENCES]
        print(f"| {where} | {counts.total()} | " + " | ".join(cells) + " |")
    sums = [str(sum(counts[defence] for counts in table.values())) for defence in DEFENCES]
    print(f"| all | {len(chosen)} | " + " | ".join(sums) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
