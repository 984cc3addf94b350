"""Makes the modules of benchmarks/ importable: truth (an evaluator of its own), campaign and forging."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
