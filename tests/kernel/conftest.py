"""Makes benchmarks/truth.py importable: what mpmath says."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
