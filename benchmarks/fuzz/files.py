"""Files of folders: what the readers accept is what the bytes say, finite, and at places that exist."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np

import attacks
import forging
from fuzz.cases import Case, fuzzer
from fuzz.honest import honest
from judge import contents
from transformula.kernel.exceptions import TransformulaError
from transformula.kernel.folder.description import Certificate
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.folder.weights import Matrix, named_matrices

NAMES = ("sine", "cubic32")
FORGERIES = [
    forge for kind in ("weights", "rationals", "outline", "claim", "bytes") for forge in forging.FORGERIES[kind]
] + [forging.number_in("body"), forging.number_in("claim"), attacks.whole_claim]
CLAIMS = ("approximation", "rounding", "eps")


@fuzzer
def files(case: Case) -> None:
    """Forge the files of an honest folder, and read them."""
    rng = case.rng
    name, forge = rng.choice(NAMES), rng.choice(FORGERIES)
    folder, case.given = honest(*NAMES)[name].copy(), f"{name}: {forge.__name__}"
    try:
        forge(folder, rng)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError):
        return
    made = forging.written(folder)
    sent = None if made is None else contents(made)
    if made is None or sent is None:
        return
    try:
        weights, description = unpack(sent[0])
    except TransformulaError:
        pass
    else:
        said, arrays = json.loads(made["model.json"]), forging.read_arrays(made["model.safetensors"])
        case.check(
            "a description says what the file says", all(getattr(description, k) == v for k, v in said.items()), said
        )
        for stem, matrix in named_matrices(weights):
            _check_matrix(case, stem, matrix, said, arrays)
    _check_claim(case, sent[1])


def _check_matrix(case: Case, stem: str, matrix: Matrix, said: dict[str, Any], arrays: dict[str, Any]) -> None:
    parts = {part: arrays[f"{stem}.{part}"] for part in ("rows", "cols", "values")}
    same = all(np.array_equal(getattr(matrix, part), array) for part, array in parts.items())
    case.check("arrays are what the bytes say", same and list(matrix.shape) == said["shapes"][stem], stem)
    case.check("stored numbers are finite", np.isfinite(parts["values"]).all(), parts["values"])
    places = set(zip(parts["rows"].tolist(), parts["cols"].tolist(), strict=True))
    exist = all(0 <= r < matrix.shape[0] and 0 <= c < matrix.shape[1] for r, c in places)
    case.check("entries stand once each at places that exist", exist and len(places) == len(parts["values"]), stem)
    exact = said["exact"].get(stem)
    if exact is not None:
        found = [Fraction(int(v.p), int(v.q)) for v in matrix.exact or ()]
        case.check("rationals are what the file says", found == list(map(Fraction, exact)), stem)


def _check_claim(case: Case, text: str) -> None:
    try:
        certificate = Certificate.from_json(text)
    except TransformulaError:
        return
    said = json.loads(text)
    for key in CLAIMS:
        value = getattr(certificate, key)
        holds = np.isfinite(value) and value >= 0 and Fraction(value) == Fraction(said[key])
        case.check("a claim is a number, and the one in the file", holds, f"{key}: {value} for {said[key]}")
