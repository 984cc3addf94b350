"""How much an installation takes: a wheel installed into an empty environment, package by package.

    python benchmarks/install_size.py                    # builds the wheel; the core
    python benchmarks/install_size.py --extras all       # with extras
    python benchmarks/install_size.py --wheel build/dist/transformula-0.1.0-py3-none-any.whl --environment build/core

Sizes are those of the installed files, byte code included, in MB of a million bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SIZES = """
import json
from importlib.metadata import distributions
def size(path):
    return path.stat().st_size if path.exists() else 0
found = {d.name: sum(size(d.locate_file(f)) for f in d.files or ()) for d in distributions()}
print(json.dumps(found))
"""


def build(folder: Path, *kinds: str) -> list[Path]:
    """A wheel and/or an sdist of the working tree."""
    command = [sys.executable, "-m", "build", "--outdir", str(folder), *(f"--{kind}" for kind in kinds), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return sorted(folder.iterdir())


def environment(folder: Path, what: Path | str, extras: str = "", constraints: Path | None = None) -> Path:
    """The Python of a new environment that holds a package and its dependencies, and not even pip."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = f"{what}[{extras}]" if extras else str(what)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", wanted]
    command += ["-c", str(constraints)] if constraints else []
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, capture_output=True, text=True, env=clean)
    return python


def sizes(python: Path) -> dict[str, float]:
    """Package → MB, in an environment."""
    found = subprocess.run([python, "-I", "-c", _SIZES], check=True, capture_output=True, text=True).stdout
    return {name: size / 1e6 for name, size in json.loads(found).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="", help="extras to install, like torch,onnx")
    parser.add_argument("--wheel", type=Path, help="a wheel that is already built")
    parser.add_argument("--environment", type=Path, help="where to leave the environment")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = given.wheel or build(Path(scratch) / "wheel", "wheel")[0]
        python = environment(
            given.environment or Path(scratch) / "env", wheel.resolve(), given.extras, ROOT / "constraints.txt"
        )
        found = sizes(python)
    for name, size in sorted(found.items(), key=lambda entry: -entry[1]):
        print(f"{size:9.1f}  {name}")
    print(f"{sum(found.values()):9.1f}  MB in all")


if __name__ == "__main__":
    main()
