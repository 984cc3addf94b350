"""Attention and feed-forward against torch.nn (Gumaan eq. 5-8), and hardmax against its definition."""

import numpy as np
import pytest
import torch
from torch import nn

import transformula as tf
from support.table import hand_made, random_block
from transformula.errors import InputError
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head
from transformula.runtime import reference
from transformula.runtime.matrices import dense_matrix
from transformula.runtime.reference import attend, feed_forward, hardmax, run, run_block, softmax
from transformula.runtime.torch_blocks import BlockModule, TransformerModule

WIDTH, TOKENS, SAMPLES = 12, 7, 5


def _as_heads(mha: nn.MultiheadAttention) -> Attention:
    heads, depth = mha.num_heads, mha.head_dim
    q, k, v = (w.detach().numpy() for w in mha.in_proj_weight.chunk(3))
    out = mha.out_proj.weight.detach().numpy()
    parts = [slice(h * depth, (h + 1) * depth) for h in range(heads)]
    return Attention(
        tuple(Head(*(dense_matrix(m[p]) for m in (q, k, v)), dense_matrix(out[:, p])) for p in parts),
        "softmax",
        1 / depth**0.5,
    )


def _stream(seed=0):
    return np.random.default_rng(seed).normal(size=(SAMPLES, TOKENS, WIDTH))


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6])
def test_softmax_attention_is_torch_multihead_attention(heads):
    torch.manual_seed(heads)
    mha = nn.MultiheadAttention(WIDTH, heads, bias=False, batch_first=True, dtype=torch.float64)
    z = torch.from_numpy(_stream())
    expected, weights = mha(z, z, z, average_attn_weights=False)
    attention = _as_heads(mha)
    ours, patterns = attend(attention, z.numpy())
    np.testing.assert_allclose(ours, expected.detach(), atol=1e-12)
    np.testing.assert_allclose(np.stack(patterns, axis=1), weights.detach(), atol=1e-12)
    module = BlockModule(Block(attention))
    np.testing.assert_allclose((module(z) - z).detach(), expected.detach(), atol=1e-12)


@pytest.mark.parametrize("heads", [1, 3])
def test_a_block_is_an_encoder_layer_without_normalisation(heads):
    torch.manual_seed(heads)
    layer = nn.TransformerEncoderLayer(WIDTH, heads, 20, dropout=0.0, batch_first=True, bias=True, dtype=torch.float64)
    layer.norm1, layer.norm2 = nn.Identity(), nn.Identity()
    with torch.no_grad():
        layer.self_attn.in_proj_bias.zero_()
        layer.self_attn.out_proj.bias.zero_()
    arrays = [
        p.detach().numpy() for p in (layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias)
    ]
    parts = [dense_matrix(a.reshape(len(a), -1)) for a in arrays]
    block = Block(_as_heads(layer.self_attn), FeedForward(*parts))
    z = torch.from_numpy(_stream(1))
    layer.train()  # the fused inference path cannot know that the norms were taken out
    expected = layer(z).detach()
    np.testing.assert_allclose(run_block(block, z.numpy())[0], expected, atol=1e-12)
    np.testing.assert_allclose(BlockModule(block)(z).detach(), expected, atol=1e-12)


def test_feed_forward_is_the_formula():
    rng = np.random.default_rng(3)
    layer = random_block(rng, WIDTH, 1, 2, 8).feed_forward
    z = _stream()
    w1, w2 = layer.hidden.dense(), layer.output.dense()
    b1, b2 = layer.hidden_bias.dense()[:, 0], layer.output_bias.dense()[:, 0]
    expected = np.array([[w2 @ np.maximum(w1 @ t + b1, 0) + b2 for t in sample] for sample in z])
    np.testing.assert_allclose(feed_forward(layer, z), expected, atol=1e-12)


def test_softmax_survives_large_scores():
    rows = np.array([[1e4, 0.0, -1e4], [-1e308, -1e308, -1e308]])
    np.testing.assert_allclose(softmax(rows), [[1, 0, 0], [1 / 3] * 3])


def test_hardmax_keeps_the_largest_score_unchanged():
    scores = np.array([[[3.5, -1.0, 2.0], [-4.0, -2.5, -3.0], [1.0, 1.0, 0.0]]])
    expected = [[[3.5, 0, 0], [0, -2.5, 0], [1.0, 0, 0]]]
    np.testing.assert_array_equal(hardmax(scores), expected)


@pytest.mark.parametrize("scale", [0.7, -0.7])
@pytest.mark.parametrize("tokens", [1, TOKENS])
def test_torch_hardmax_is_the_same(scale, tokens):
    """With one token the only score is the largest, whatever its sign."""
    rng = np.random.default_rng(5)
    block = random_block(rng, WIDTH, 2, 3, 0, kind="hardmax", scale=scale)
    z = _stream(2)[:, :tokens]
    attended, patterns = attend(block.attention, z)
    assert tokens > 1 or any((p < 0).any() for p in patterns)
    ours = BlockModule(block)(torch.from_numpy(z)).detach().numpy() - z
    np.testing.assert_allclose(ours, attended, atol=1e-12)


def test_scale_multiplies_scores():
    rng = np.random.default_rng(4)
    block = random_block(rng, WIDTH, 1, 3, 0, scale=1.0)
    head = block.attention.heads[0]
    louder = Head(dense_matrix(head.query.dense() * 2.5), head.key, head.value, head.output)
    z = _stream()
    np.testing.assert_allclose(
        attend(Attention((head,), "softmax", 2.5), z)[0],
        attend(Attention((louder,), "softmax", 1.0), z)[0],
        atol=1e-12,
    )


def test_every_number_of_a_module_is_trainable_and_training_lowers_a_loss():
    torch.manual_seed(0)
    rng = np.random.default_rng(11)
    case = hand_made("trained", [random_block(rng, 6, 2, 3, 8)], outputs=1)
    module = TransformerModule(case.weights)
    x = torch.from_numpy(case.x)
    target = torch.sin(x.sum(dim=1, keepdim=True))

    def loss():
        return ((module(x) - target) ** 2).mean()

    before = loss()
    before.backward()
    named = dict(module.named_parameters())
    assert {"memory", "embedding", "readout", "bias"} <= set(named)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in named.values())
    start = module.memory.detach().clone()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss() < 0.5 * before
    assert not torch.equal(module.memory, start)


@pytest.mark.parametrize("budget", [400, 4_000, 40_000])
def test_the_scores_of_many_tokens_are_never_held_at_once(budget, monkeypatch):
    model = tf.compile("x*exp(-y)", on="x=-1..1, y=0..1", eps=0.1, construction="attention-only")
    x = np.random.default_rng(0).uniform(0, 1, (30, 2))
    whole, held = run(model.weights, x), []

    def watched(scores):
        held.append(scores.size)
        return softmax(scores)

    monkeypatch.setattr(reference, "CHUNK_FLOATS", budget)
    monkeypatch.setitem(reference.PATTERNS, "softmax", watched)
    assert model.tokens**2 > 25_000 and model.tokens < 400
    np.testing.assert_allclose(run(model.weights, x), whole, rtol=0, atol=model.certificate.rounding)
    assert max(held) <= budget and len(held) >= len(x) * model.tokens / budget


def test_a_trace_that_would_fill_the_memory_is_refused(monkeypatch):
    model = tf.compile("sin(x)", on="x=0..1", eps=1e-3)
    monkeypatch.setattr(reference, "MAX_TRACE", 1_000)
    assert model.trace([[0.5]]).outputs.shape == (1, 1)
    with pytest.raises(InputError, match=r"a trace of 100 points through .* tokens would keep .* numbers"):
        model.trace(np.zeros((100, 1)))
