"""All benchmarks, each beside its competitor in the same run: ``make bench``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import compiling
import dense_quintic
import f2_points
import one_layer
import starting
from report import Line, show


def main() -> int:
    """Run everything; the exit code says whether every target is met."""
    lines: list[Line] = []
    for module in (starting, compiling, f2_points, dense_quintic, one_layer):
        lines += module.measure()
    show(lines)
    return int(not all(line.met for line in lines))


if __name__ == "__main__":
    sys.exit(main())
