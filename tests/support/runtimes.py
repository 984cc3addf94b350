"""Every runtime that needs no GPU, and how far each is from the truth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flint import arb

import transformula as tf
from transformula.compiler.certify import outlined, pack
from transformula.compiler.evidence.finder import Finder
from transformula.export.onnx_files import onnx_bytes
from transformula.export.stock_packing import stock_module
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import prove, verify_files
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.folder.description import Certificate, Description
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import describe
from transformula.model import Model
from transformula.runtime import reference
from transformula.runtime.onnx_graph import onnx_executor

Run = Callable[[np.ndarray], Any]
#: Bits for numbers of any size beside each other.
BITS = 2400


def sealed(weights: Weights, stated: Description) -> Model:
    """A model that claims what the kernel proves of its weights; raises what the kernel raises."""
    finder = Finder(follow=False)
    proof = prove(weights, outlined(weights, stated), finder)
    packed = pack(weights, stated, finder.evidence())
    numbers = proof.approximation, proof.rounding, 1.001 * proof.bound + 1e-320
    claim = Certificate(stated.construction, *numbers, weights.dtype, describe(weights.dtype), **packed.hashes)
    found = verify_files(packed, claim.to_json())
    assert found.verified, found.reasons
    return Model.from_packed(packed, claim.to_json())


def runtimes(model: Model) -> dict[str, Run]:
    """Functions from rows of inputs in the model's dtype to its outputs."""
    import torch

    module, blocks = (model.to_torch(blocks=written) for written in (False, True))
    stock = stock_module(model.weights, model.sequence)
    program, graph = (
        onnx_executor(onnx_bytes(model.packed, model.certificate, blocks=written, proven=True))
        for written in (False, True)
    )

    def plain(run: Any) -> Run:
        def without_gradients(x: np.ndarray) -> Any:
            with torch.no_grad():
                return run(torch.from_numpy(x))

        return without_gradients

    def shaped(run: Run) -> Run:
        return lambda x: run(x if model.sequence is None else x.reshape(-1, *model.sequence))

    found = {
        "blocks": lambda x: reference.run(model.weights, x),
        "ndarray": shaped(model),
        "ndarray, one by one": shaped(lambda x: np.stack([np.asarray(model(row)) for row in x])),
        "tensor": shaped(plain(model)),
        "tensor with a gradient": shaped(lambda x: model(torch.from_numpy(x).requires_grad_()).detach()),
        "torch": plain(module),
        "torch with gradients": lambda x: module(torch.from_numpy(x).requires_grad_()).detach(),
        "torch blocks": plain(blocks),
        "stock torch": shaped(plain(stock)),
        "onnx": shaped(program),
        "onnx blocks": shaped(graph),
    }
    if hasattr(module, "written") and model.program.positions == 1:  # the order of the fused kernels
        found["scalars"] = plain(module.written)
    return found


def errors(model: Model, x: np.ndarray, wanted: Sequence[Sequence[arb]]) -> dict[str, float]:
    """The largest error of each runtime at points (rows, float64) with these true values; NaN counts as infinite."""
    many = np.resize(x, (1000, x.shape[1])).astype(model.weights.dtype)
    given, found = many[: len(x)], {}
    with np.errstate(all="ignore"):
        for name, run in runtimes(model).items():
            rows = many if name in ("ndarray", "tensor", "torch", "onnx") else given
            got = np.asarray(run(rows), dtype=np.float64).reshape(len(rows), -1)[: len(x)]
            found[name] = max(_error(*pair) for pair in zip(got.tolist(), wanted, strict=True))
    return found


def _error(got: list[float], wanted: Sequence[arb]) -> float:
    with precision(BITS):
        gaps = [abs(arb(a) - b) for a, b in zip(got, wanted, strict=True)]
        return max(float(gap.abs_upper()) if gap.is_finite() else np.inf for gap in gaps)


def outside_claim(model: Model, count: int = 20, seed: int = 0) -> dict[str, float]:
    """The runtimes that are not within the claim at corners and random points, with their error over the bound."""
    if isinstance(model.formula, tf.Formula):
        low, high = np.array(model.box.floats()).T
        t = np.random.default_rng(seed).random((count, len(low)))
        corners = list(itertools.islice(itertools.product((0.0, 1.0), repeat=len(low)), 16))
        t = np.concatenate([corners, t, [[0.5] * len(low)]])
        x = np.clip(low * (1 - t) + high * t, low, high)
        with precision(BITS):
            known = [dict(zip(model.box.variables, map(arb, p), strict=True)) for p in x.tolist()]
            wanted = [[enclose(e, at) for e in model.formula.outputs] for at in known]
    else:
        x, wanted = model.formula.x, [list(map(arb, row)) for row in model.formula.y.tolist()]
    bound, mean = model.certificate.bound, model.certificate.mean
    if mean is not None:  # nothing is claimed of the seams but this
        bound, wanted = mean.largest, [[arb(0)] * len(row) for row in wanted]
    return {name: error / bound for name, error in errors(model, x, wanted).items() if not error <= bound}
