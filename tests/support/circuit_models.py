"""Circuits to test: named cases of the issue, small ones of every kind, and the wires evaluated in floats."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import transformula as tf
from transformula.errors import ModelFileError
from transformula.formula.evaluation import evaluate
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm

CASES_FILE = Path(__file__).parents[2] / "benchmarks" / "formulas.csv"
CASES = {row["name"]: row for row in csv.DictReader(CASES_FILE.read_text().splitlines())}

#: name: formula(s), box, eps in float64, eps in float32; quick to compile, every kind of wire among them
SMALL = {
    "product": ("x*y", "x=-1..2, y=0..3", 1e-7, 1e-3),
    "quotient": ("x*y/(1 + x**2)", "x=0..1, y=-1..1", 1e-5, 1e-3),
    "kinks": ("max(x*y, sin(x)) - abs(y - x/3)", "x=-1..1, y=0..2", 1e-5, 1e-3),
    "root": ("sqrt(x*y)", "x=0..1, y=0..1", 5e-2, 1e-1),
    "distance": ("sqrt((x - y)**2 + z**2)", "x=0..1, y=0..1, z=-1..1", 1e-2, 2e-3),
    "power": ("x**y", "x=1..2, y=-1..1", 1e-5, 1e-3),
    "two outputs": (["x*exp(y)", "exp(y) - pi*x"], "x=-1..1, y=0..1", 1e-5, 1e-3),
}


@dataclass
class Shelf:
    """Compiled circuits by name and dtype, kept in a folder that all workers of a test run share."""

    folder: Path
    held: dict[tuple[str, str], tf.Model] = field(default_factory=dict)

    def __call__(self, name: str, dtype: str = "float64") -> tf.Model:
        if (name, dtype) not in self.held:
            place = self.folder / f"{name}-{dtype}"
            try:
                model = tf.load(place)
            except ModelFileError:
                model = compiled(name, dtype)
                model.save(place)
            self.held[name, dtype] = model
        return self.held[name, dtype]


def compiled(name: str, dtype: str) -> tf.Model:
    if name in SMALL:
        formula, box, fine, coarse = SMALL[name]
        eps = fine if dtype == "float64" else coarse
        return tf.compile(formula, on=box, eps=eps, dtype=dtype, construction="circuit")
    case = CASES[name]
    if dtype == "float64":
        return tf.compile(case["formula"], on=case["on"], eps=float(case["eps"]), construction="circuit")
    return tf.compile(case["formula"], on=case["on"], rel=1e-3, dtype=dtype, construction="circuit")


def wire_values(circuit: Circuit, x: np.ndarray, multiplied: bool = False) -> list[np.ndarray]:
    """Every wire at samples × inputs; products are sums of squares, or ``multiplied``, and lengths are lengths."""
    values = [x[:, k] for k in range(len(circuit.variables))]
    for wire in circuit.wires[len(values) :]:
        arguments = [linear_value(linear, values) for linear in wire.arguments]
        if wire.is_norm:
            values.append(np.hypot(*arguments))
        elif wire.total is not None:
            values.append(arguments[0] * arguments[1] if multiplied else linear_value(wire.total, values))
        elif wire.function is None:
            values.append(np.maximum(arguments[0], 0))
        else:
            values.append(evaluate(wire.function, list(wire.names), arguments))
    return values


def linear_value(linear: LinearForm, values: list[np.ndarray]) -> np.ndarray:
    def number(constant):
        return evaluate(constant, ["u"], [np.zeros(1)])[0]

    total = np.full(len(values[0]), number(linear.constant))
    return total + sum(number(c) * values[k] for k, c in linear.terms)
