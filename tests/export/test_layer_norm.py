"""LayerNorm left in place: the stock pre-norm layer stays within its proven bound, even at its worst."""

import numpy as np
import pytest
import torch
from torch import nn

import transformula as tf
from support.edge_models import equal_tokens
from support.one_layer_models import model_named, points_of
from support.runtimes import sealed
from transformula.errors import ExportError
from transformula.export.layer_norm import NORM_UNITS, prove_normed
from transformula.export.stock_packing import stock_module
from transformula.runtime.reference import run

NAMES = ("one variable", "two heads", "linear forms", "kinks", "two outputs", "three variables",
         "partition of a form", "sequence", "wide sequence", "memorize")  # fmt: skip
COARSE = ("softmax itself", "two outputs")


def _distance(model, module, x):
    """|stock layer − T_w|, T_w in extended precision."""
    wanted = run(model.weights, x.astype(np.longdouble), dtype=np.longdouble)
    with torch.no_grad():
        found = module(torch.from_numpy(x.astype(model.weights.dtype))).numpy()
    return float(np.abs(found - wanted).max())


@pytest.mark.parametrize(("name", "dtype"), [*((n, "float64") for n in NAMES), *((n, "float32") for n in COARSE)])
def test_a_stock_layer_keeps_the_tolerance(name, dtype):
    model = model_named(name, dtype)
    proof = prove_normed(model.weights, model.box)
    assert model.certificate.approximation + proof.rounding <= model.certificate.eps
    module = stock_module(model.weights, None, proof.pad)
    (layer,) = module.blocks
    assert type(layer) is nn.TransformerEncoderLayer and layer.norm_first
    assert all(type(n) is nn.LayerNorm and n.eps == 1e-5 for n in (layer.norm1, layer.norm2))
    x = points_of(model, 40).astype(dtype)
    for mode in (module.eval(), module.train()):  # the fused path and the plain one
        assert _distance(model, mode, x) <= proof.rounding


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_holds_for_a_layer_norm_as_bad_as_the_model_allows(name, monkeypatch):
    model = model_named(name)
    proof = prove_normed(model.weights, model.box)
    slip = NORM_UNITS * proof.width * 2.0**-53
    rng = torch.Generator().manual_seed(0)

    def worst(self, z):
        def sign():
            return (torch.rand(*z.shape[:-1], 1, generator=rng, dtype=z.dtype) < 0.5) * 2.0 - 1

        mean = z.mean(-1, keepdim=True) + 0.9 * slip * z.abs().amax(-1, keepdim=True) * sign()
        variance = ((z - z.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True)
        scale = (1 + 0.9 * slip * sign()) / torch.sqrt(variance + self.eps)
        return (z - mean) * scale * self.weight + self.bias

    monkeypatch.setattr(nn.LayerNorm, "forward", worst)
    module = stock_module(model.weights, None, proof.pad).train()
    x = points_of(model, 40)
    assert _distance(model, module, x) <= proof.rounding


def test_without_the_large_constants_layer_norm_spoils_everything():
    model = model_named("two heads")
    assert _distance(model, stock_module(model.weights, None, 16.0), points_of(model)) > 0.1


def test_what_does_not_fit_is_refused(circuits):
    for model in (tf.compile("x**2", on="x=0..1"), circuits("product")):
        with pytest.raises(ExportError, match="only one-layer table models"):
            prove_normed(model.weights, model.box)
    with pytest.raises(ExportError, match="without tables"):
        prove_normed(model_named("no table").weights, model_named("no table").box)
    coarse = model_named("partition", "float32")
    with pytest.raises(ExportError, match="float32 is too coarse"):
        prove_normed(coarse.weights, coarse.box)


@pytest.mark.parametrize("exponent", [500, 1000])
def test_numbers_whose_squares_overflow_are_refused(exponent):
    """LayerNorm squares them."""
    model = sealed(*equal_tokens(exponent, "float64"))
    with pytest.raises(ExportError, match="too large for LayerNorm"):
        prove_normed(model.weights, model.box)
