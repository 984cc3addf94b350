"""Every case formula as a Hugging Face folder, run by transformers in a process that cannot import transformula.

``python benchmarks/hugging_face.py [--points 10000] [--models FOLDER] [NAME ...]`` compiles each case in float64 (its own
tolerance) and float32 (the first of 1e-3, 1e-2, .. that is proven), exports it as T5 and GPT-2, and prints the largest
difference to the reference beside the proven rounding. Compiled models are kept in ``--models``. It exits with 1 if a
folder is further off than proven; a folder whose rounding is not proven is not written, and counted.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import transformula as tf
from transformula.errors import ExportError, NotProvenError
from transformula.export.hf_files import hf_bound, hf_rounding
from transformula.model import Model
from transformula.runtime import reference

ARCHITECTURES = ("t5", "gpt2")
#: Runs the code of the cards, and nothing of this project.
CHILD = """
import json, re, sys
sys.modules["transformula"] = None
import numpy as np, torch
torch.set_num_threads(1)
import transformers
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
for folder, points in json.load(sys.stdin):
    card = open(folder + "/README.md").read()
    lines = re.search(r"```python\\n(.*?)```", card, re.DOTALL).group(1).splitlines()
    call = compile("\\n".join(lines[lines.index(next(l for l in lines if l.startswith("tokens ="))):]), folder, "exec")
    loader = re.search(r"import (AutoModel\\w+)", card).group(1)
    model = getattr(transformers, loader).from_pretrained(folder, local_files_only=True)
    x, found = np.load(points), []
    with torch.no_grad():
        for start in range(0, len(x), 500):
            names = {"torch": torch, "model": model, "x": torch.from_numpy(x[start:start + 500])}
            exec(call, names)
            found.append(names["y"].reshape(len(names["x"]), -1).numpy())
    np.save(folder + ".npy", np.concatenate(found))
"""


def compiled(case: dict[str, str], dtype: str, models: Path) -> Model:
    """A softmax model of a case: the default construction, or a circuit where that is a polynomial."""
    folder = models / f"{case['name']}-{dtype}"
    if folder.exists():
        return tf.load(folder)
    for eps in [float(case["eps"])] if dtype == "float64" else [10.0**k for k in range(-3, 6)]:
        try:
            model = tf.compile(case["formula"], on=case["on"], eps=eps, dtype=dtype)
            if model.construction in ("polynomial", "corollary"):
                model = tf.compile(case["formula"], on=case["on"], eps=eps, dtype=dtype, construction="circuit")
        except NotProvenError:
            continue
        model.save(folder)
        return model
    raise NotProvenError(f"no tolerance of {case['name']} is proven in {dtype}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--models", type=Path)
    options = parser.parse_args()
    with (Path(__file__).parent / "formulas.csv").open(newline="") as file:
        cases = [row for row in csv.DictReader(file) if not options.names or row["name"] in options.names]
    with tempfile.TemporaryDirectory() as place:
        root, models = Path(place), options.models or Path(place) / "models"
        rows = [row for case in cases for row in exported(case, models, root, options.points)]
        jobs = [(str(row.folder), str(row.points)) for row in rows if row.rounding is not None]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        subprocess.run([sys.executable, "-c", CHILD], input=json.dumps(jobs), env=environment, text=True, check=True)
        print("| case | dtype | architecture | bytes | certificate | rounding here | bound | measured |")
        print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
        failed = sum(not _is_within(row) for row in rows)
    sys.exit(failed > 0)


class Row(NamedTuple):
    """One folder: its points, the reference there, and the rounding that is proven, or None."""

    name: str
    dtype: str
    arch: str
    folder: Path
    points: Path
    wanted: NDArray[Any]
    certificate: float
    rounding: float | None


def exported(case: dict[str, str], models: Path, root: Path, points: int) -> Iterator[Row]:
    """The folders of one case."""
    for dtype in ("float64", "float32"):
        model = compiled(case, dtype, models)
        ends = np.array(model.box.floats())
        x = np.random.default_rng(0).uniform(ends[:, 0], ends[:, 1], (points, len(ends))).astype(dtype)
        place = root / f"{case['name']}-{dtype}.npy"
        np.save(place, x)
        wanted = reference.run(model.weights, x, dtype="float64")
        for arch in ARCHITECTURES:
            folder, rounding = root / f"{case['name']}-{dtype}-{arch}", None
            try:
                rounding = hf_rounding(model, arch)
                model.to_hf(folder, arch)
            except (NotProvenError, ExportError) as error:
                print(f"{case['name']} as {arch} in {dtype}: {error}", file=sys.stderr)
            yield Row(case["name"], dtype, arch, folder, place, wanted, model.certificate.rounding, rounding)


def _is_within(row: Row) -> bool:
    """Print a row; False if its folder is further off than proven."""
    start = f"| {row.name} | {row.dtype} | {row.arch} |"
    if row.rounding is None:
        print(f"{start} | {row.certificate:.2g} | not proven, not written | | |")
        return True
    off = float(np.abs(np.load(f"{row.folder}.npy").astype(float) - row.wanted).max())
    size = sum(path.stat().st_size for path in row.folder.iterdir())
    print(f"{start} {size:,} | {row.certificate:.2g} | {row.rounding:.2g} | {hf_bound(row.folder):.2g} | {off:.2g} |")
    return off <= row.rounding


if __name__ == "__main__":
    main()
