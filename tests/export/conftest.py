"""Makes benchmarks/text_prompts.py importable: prompts of a text model, and their answers."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
