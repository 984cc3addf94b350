"""Makes benchmarks/ importable: the package fuzz, and what it uses."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
