"""Random interventions on circuits: each prediction against the formula with the wire replaced, and its proven bound.

``python benchmarks/interventions.py [--count 1000] [--seed 0]`` takes ten of the case formulas, holds random wires at
random values of their ranges, and prints one row for each formula; it exits with 1 if a prediction fails.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

import transformula as tf
from transformula.compiler.interventions import slot_wires, wire_range
from transformula.errors import NotProvenError
from transformula.formula.evaluation import evaluate_accurately
from transformula.kernel.syntax.parsing import parse
from transformula.model import Model

CASES = ("I.6.2b", "I.12.2", "I.27.6", "I.38.12", "II.6.15b", "II.11.20", "III.4.33", "test_5", "test_11", "I.9.18")
POINTS = 20


def largest_share(model: Model, count: int, rng: np.random.Generator) -> tuple[float, int]:
    """The largest error over its proven bound in random interventions on one model, and how many were refused."""
    ends, worst, names = np.array(model.box.floats()), 0.0, model.box.variables
    refused = 0
    for _ in range(count):
        slot = str(rng.choice(sorted(slot_wires(model))))
        try:
            held = model.patch(**{slot: rng.uniform(*wire_range(model, slot))})
        except NotProvenError:  # the circuit is not defined with this value at every point of the box
            refused += 1
            continue
        x = rng.uniform(ends[:, 0], ends[:, 1], (POINTS, len(ends)))
        wanted = evaluate_accurately(parse(held.formula[0], names), names, list(x.T))
        worst = max(worst, float(np.abs(held(x) - wanted).max()) / held.certificate.bound)
    return worst, refused


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    with (Path(__file__).parent / "formulas.csv").open(newline="") as file:
        cases = {row["name"]: row for row in csv.DictReader(file)}
    print("| formula | interventions | refused | largest error / proven bound |\n| --- | ---: | ---: | ---: |")
    worst = 0.0
    for name in CASES:
        case, count = cases[name], options.count // len(CASES)
        model = tf.compile(case["formula"], on=case["on"], eps=float(case["eps"]), construction="circuit")
        share, refused = largest_share(model, count, rng)
        worst = max(worst, share)
        print(f"| {name} | {count} | {refused} | {share:.3f} |", flush=True)
    sys.exit(not worst <= 1)


if __name__ == "__main__":
    main()
