"""All 3003 monomials of degree 5 in 10 variables at 10^5 points, against scikit-learn.

Each side runs in a process of its own, so that its peak memory can be told. ``ours`` loads a saved
model; ``theirs`` is PolynomialFeatures(5) and a dot product with the same coefficients.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from report import Line, seconds

POINTS, VARIABLES, DEGREE = 100_000, 10, 5


def _points() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, size=(POINTS, VARIABLES))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_ours(folder: str) -> dict[str, object]:
    """Evaluate the saved model."""
    import transformula as tf

    model, x = tf.load(folder), _points()
    model(x[:10])
    best = seconds(lambda: model(x), 3)
    return {"seconds": best, "megabytes": _peak(), "values": model(x[:200]).tolist()}


def run_theirs(folder: str) -> dict[str, object]:
    """Expand the features, then multiply."""
    from sklearn.preprocessing import PolynomialFeatures

    table = json.loads(Path(folder, "..", "terms.json").read_text())
    features, x = PolynomialFeatures(DEGREE).fit(np.zeros((1, VARIABLES))), _points()
    by_power = {tuple(e): v for e, v in table}
    coefficients = np.array([by_power[tuple(p)] for p in features.powers_.tolist()])
    features.transform(x[:10]) @ coefficients
    best = seconds(lambda: features.transform(x) @ coefficients, 2)
    values = (features.transform(x[:200]) @ coefficients).tolist()
    return {"seconds": best, "megabytes": _peak(), "values": values}


def _apart(side: str, folder: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, __file__, side, folder], capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def measure() -> list[Line]:
    """Compile once, then run both sides."""
    import transformula as tf
    from compiling import dense_text
    from transformula.kernel.derivations.polynomials import as_polynomial

    model = tf.compile(dense_text(VARIABLES, DEGREE), on=f"x1..x{VARIABLES}=-1..1")
    terms = as_polynomial(model.formula.outputs[0], model.box.variables).rational_or_ball_terms()
    with tempfile.TemporaryDirectory() as home:
        folder = str(model.save(Path(home) / "model"))
        table = [[[int(k) for k in e], int(v.p) / int(v.q)] for e, v in terms.items()]
        Path(home, "terms.json").write_text(json.dumps(table))
        ours, theirs = _apart("ours", folder), _apart("theirs", folder)
    difference = np.max(np.abs(np.array(ours["values"]) - np.array(theirs["values"])))
    assert difference <= model.certificate.bound + 1e-9, difference
    speed = theirs["seconds"] / ours["seconds"]
    memory = theirs["megabytes"] / ours["megabytes"]
    what = "3003 terms at 10^5 points, against PolynomialFeatures + dot"
    return [
        Line(f"{what} ({model.tokens} tokens)", f"{ours['seconds']:.2f} s", f"{theirs['seconds']:.2f} s",
             f"{speed:.1f}x faster", ">= 5x", speed >= 5),
        Line("  peak memory of the process", f"{ours['megabytes']:.0f} MB", f"{theirs['megabytes']:.0f} MB",
             f"1/{memory:.1f}", "< 1/3", memory > 3),
    ]  # fmt: skip


if __name__ == "__main__":
    side = {"ours": run_ours, "theirs": run_theirs}[sys.argv[1]]
    print(json.dumps(side(sys.argv[2])))
