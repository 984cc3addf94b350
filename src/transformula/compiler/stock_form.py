"""The model that a stock architecture of transformers computes: of a polynomial the circuit of its formula."""

from __future__ import annotations

from pathlib import Path

from transformula import proven
from transformula.compiler import policy
from transformula.compiler.driver import compile_formula
from transformula.errors import ModelFileError, NotProvenError
from transformula.export.hf_files import POLYNOMIALS
from transformula.export.hf_layout import ARCHITECTURES, REMOTE
from transformula.model import Model
from transformula.model_folder import CIRCUIT_FOLDER


def is_replaced(model: Model, arch: str) -> bool:
    """Whether an architecture computes the circuit of a polynomial's formula in its place."""
    return arch in ARCHITECTURES and arch != REMOTE and model.construction in POLYNOMIALS


def stock_form(model: Model, folder: Path, arch: str) -> tuple[Model, Path]:
    """The model that an architecture computes, and its folder.

    Stock architectures have no hardmax attention. The circuit is kept inside the model's folder, and made if it is not
    there, within the default tolerance or the polynomial's, or as near as can be proven.
    """
    if not is_replaced(model, arch):
        return model, folder
    place = folder / CIRCUIT_FOLDER
    if not place.exists():
        return circuit_form(model), place
    circuit = Model.load(place)
    if (circuit.formula, circuit.construction) != (model.formula, "circuit"):
        raise ModelFileError(f"{place} is not the circuit of this formula: remove it")
    proven.require_proof(circuit.packed, circuit.certificate)
    return circuit, place


def circuit_form(model: Model) -> Model:
    """A polynomial's formula as a circuit."""
    eps = max(model.certificate.eps, policy.DEFAULT_EPS)
    asked = {"construction": "circuit", "dtype": model.weights.dtype, "rel": None, "multi_head": False, "layers": None}
    for _ in range(2):
        try:
            return compile_formula(model.formula.texts, model.box, eps=eps, **asked)
        except NotProvenError as error:
            if error.best_bound is None:
                raise
            eps = 1.05 * error.best_bound
    raise NotProvenError(f"the formula is not proven as a circuit: use --arch {REMOTE}")
