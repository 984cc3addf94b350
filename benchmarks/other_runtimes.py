"""Runtimes outside our environment on exported ONNX files: OpenVINO, and onnxruntime-web in node.

``python benchmarks/other_runtimes.py [--openvino PYTHON] [--web FOLDER]`` compiles sin(x1) + sin(x2) in both formats,
exports it, and prints the largest difference to the reference at random points and corners beside the proven rounding.
PYTHON is an interpreter that has openvino, FOLDER one in which ``npm install onnxruntime-web`` was run. Nothing of this
project is imported there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import transformula as tf
from transformula.export.parity import sample_points
from transformula.runtime import reference

OPENVINO = """
import sys
import numpy as np, openvino as ov
folder, hint = sys.argv[1:]
core, x = ov.Core(), np.load(folder + "/x.npy")
options = {"INFERENCE_PRECISION_HINT": hint} if hint != "default" else {}
model = core.compile_model(core.read_model(folder + "/model.onnx"), "CPU", options)
np.save(folder + "/y.npy", np.asarray(model([x])[0], dtype=float))
print("OpenVINO", ov.__version__.split("-")[0], "computes in", model.get_property("INFERENCE_PRECISION_HINT").get_type_name())
"""
WEB = """
const ort = require("onnxruntime-web"), fs = require("fs");
const [folder, type, rows, columns] = process.argv.slice(2);
const data = fs.readFileSync(folder + "/x.bin");
const array = type === "float64" ? Float64Array : Float32Array;
const x = new array(data.buffer, data.byteOffset, data.byteLength / array.BYTES_PER_ELEMENT);
ort.env.wasm.numThreads = 1;
(async () => {
  const session = await ort.InferenceSession.create(fs.readFileSync(folder + "/model.onnx"));
  const { y } = await session.run({ x: new ort.Tensor(type, x, [Number(rows), Number(columns)]) });
  fs.writeFileSync(folder + "/y.json", JSON.stringify(Array.from(y.data)));
  console.log("onnxruntime-web " + ort.env.versions.web + ", WebAssembly");
})();
"""


def _openvino(python: str, folder: Path) -> Iterator[tuple[str, NDArray[np.floating]]]:
    for hint in ("default", "f32"):
        done = subprocess.run([python, "-c", OPENVINO, str(folder), hint], check=True, capture_output=True, text=True)
        yield f"{done.stdout.strip()}, hint {hint}", np.load(folder / "y.npy")


def _web(modules: Path, folder: Path, x: NDArray[np.floating]) -> tuple[str, NDArray[np.floating]]:
    (folder / "x.bin").write_bytes(x.tobytes())
    (folder / "run.cjs").write_text(WEB)
    command = ["node", str(folder / "run.cjs"), str(folder), str(x.dtype), *map(str, x.shape)]
    environment = {"NODE_PATH": str(modules / "node_modules"), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip(), np.array(json.loads((folder / "y.json").read_text()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openvino")
    parser.add_argument("--web", type=Path)
    given = parser.parse_args()
    print("| runtime | model | proven rounding | difference |\n| --- | --- | ---: | ---: |")
    for dtype, eps in (("float64", 1e-6), ("float32", 1e-3)):
        model = tf.compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=eps, dtype=dtype)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            model.to_onnx(folder / "model.onnx")
            x = np.ascontiguousarray(sample_points(model.formula, model.weights))
            np.save(folder / "x.npy", x)
            wanted = reference.run(model.weights, x).astype(float).ravel()
            found = list(_openvino(given.openvino, folder)) if given.openvino else []
            found += [_web(given.web, folder, x)] if given.web else []
            for label, y in found:
                off = float(np.abs(y.ravel() - wanted).max())
                print(f"| {label} | {dtype} | {model.certificate.rounding:.2g} | {off:.2g} |", flush=True)


if __name__ == "__main__":
    main()
