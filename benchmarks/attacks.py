"""Forgeries that once succeeded, or were made to: each needs a folder of its own kind, and makes its own claim.

* `race`: a table of one token for x**14, whose proof reads a power series to a length that another thread may change;
* `flat`, `scaled`: tables whose values are next to overflow, where a sum over tokens is beyond it;
* `whole_claim`: a claim written as a whole number that no float equals.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from forging import Folder

#: Just below a quarter of what the kernel calls too large.
LARGEST = {"float32": 4 * 10**37, "float64": 2 * 10**307}
BASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "fourteenth": ("x**14", "x=-1..1", {"eps": 2, "construction": "lookup"}),
    "waves": ("cos(30*x)", "x=-1..1", {"eps": 0.01, "construction": "lookup"}),
    "waves32": ("cos(30*x)", "x=-1..1", {"eps": 0.01, "construction": "lookup", "dtype": "float32"}),
    "step": ("erf(200*x)", "x=-1..1", {"eps": 3e-12, "construction": "lookup"}),
    "line": ("x", "x=0..1", {}),
}


def _claim(folder: Folder, approximation: float, rounding: float) -> None:
    folder.claim |= {"approximation": approximation, "rounding": rounding, "eps": 1.01 * (approximation + rounding)}


def _slot(folder: Folder, name: str) -> Any:
    """Where the memory holds numbers of a slot."""
    return folder.arrays["memory.cols"] == folder.body["slots"].index(name)


def race(folder: Folder, rng: random.Random) -> None:
    """The table is 1e-9 and claims to be x**14 within 1e-6."""
    terms = " + ".join(f"sin({k}/7*u)" for k in range(1, rng.randint(2, 300)))
    for name in ("slope1", "offset1", "value1"):
        folder.arrays["memory.values"][_slot(folder, name)] = 1e-9 if name == "value1" else 0.0
    kept = folder.arrays["readout.cols"] == folder.body["slots"].index("y1")
    for part in ("rows", "cols", "values"):
        folder.arrays[f"readout.{part}"] = folder.arrays[f"readout.{part}"][kept]
    circuit = folder.body["circuit"]
    circuit["wires"][0]["table"] = f"(u + 0*({terms}))**14"
    circuit["outputs"] = [{"wires": [[1, "1"]], "plus": "0"}]
    edges = [-1.0000000000000013, 1.0000000000000013]
    folder.evidence["tables"][0] |= {"pieces": edges, "cells": edges, "softmax": [edges], "slopes": edges}
    _claim(folder, 1e-6, 1e-6)


def flat(folder: Folder, rng: random.Random) -> None:
    """All tokens are equal, and so large that their sum overflows."""
    values = folder.arrays["memory.values"]
    for name in ("slope1", "offset1"):
        values[_slot(folder, name)] = 0
    values[_slot(folder, "value1")] = LARGEST[folder.body["dtype"]] * rng.choice((1.0, 0.5, 0.1))
    exact = int(values[_slot(folder, "value1")][0])
    circuit = folder.body["circuit"]
    circuit["wires"][0]["table"] = str(exact)
    (output,) = circuit["outputs"]
    slopes = dict(output["wires"])
    folder.body["formulas"] = [f"{exact} + ({slopes.get(0, '0')})*x + ({output['plus']})"]
    _claim(folder, 1e-3 * exact, 1e-3 * exact)


def scaled(folder: Folder, rng: random.Random) -> None:
    """The compiler's own table, and all it stands for, times a number that brings it next to overflow."""
    memory, place = folder.arrays["memory.values"], _slot(folder, "value1")
    factor = int(LARGEST[folder.body["dtype"]] * rng.choice((1.0, 0.3)) / float(np.abs(memory[place]).max()))
    memory[place] = [float(v * factor) for v in memory[place].astype(float)]
    own = folder.arrays["readout.cols"] == folder.body["slots"].index("y1")
    for name, kept in (("readout", own), ("bias", np.zeros(len(folder.arrays["bias.values"]), bool))):
        values = folder.arrays[f"{name}.values"]
        values[~kept] = [float(v * factor) for v in values[~kept].astype(float)]
        if (exact := folder.body["exact"].get(name)) is not None:
            folder.body["exact"][name] = [
                t if k else str(Fraction(t) * factor) for t, k in zip(exact, kept, strict=True)
            ]
    circuit = folder.body["circuit"]
    (wire,), (output,) = circuit["wires"], circuit["outputs"]
    wire["table"] = f"({wire['table']})*{factor}"
    output["wires"] = [[k, c if k == 1 else f"({c})*{factor}"] for k, c in output["wires"]]
    output["plus"] = f"({output['plus']})*{factor}"
    folder.body["formulas"] = [f"({folder.body['formulas'][0]})*{factor}"]
    _claim(folder, *(1.01 * factor * folder.claim[key] for key in ("approximation", "rounding")))


def whole_claim(folder: Folder, rng: random.Random) -> None:
    """The formula is moved by more than is claimed, by less than floats of that size can tell."""
    moved = 2**53 + 4 * rng.randint(1, 9)
    folder.body["formulas"][0] += f" + {moved}"
    folder.claim |= {"approximation": moved - 1, "rounding": 1e-9, "eps": math.ldexp(1.0, 54)}


#: name -> the folders that it is for, and what it does.
ATTACKS = {
    "race": (("fourteenth",), race),
    "flat": (("waves", "waves32"), flat),
    "scaled": (("step", "waves", "waves32"), scaled),
    "whole claim": (("line", "cubic", "cubic32"), whole_claim),
}
