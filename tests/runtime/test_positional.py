"""Positional encodings, fixed and learned."""

import math

import numpy as np
import pytest
import torch

from support.table import hand_made, random_block
from transformula.runtime.matrices import sinusoidal
from transformula.runtime.torch_blocks import TransformerModule


@pytest.mark.parametrize(("tokens", "width"), [(1, 2), (9, 8), (30, 7)])
def test_sinusoidal_is_the_formula_of_vaswani(tokens, width):
    table = sinusoidal(tokens, width)
    assert table.shape == (tokens, width)
    for position in range(tokens):
        for column in range(width):
            angle = position / 10_000 ** ((column - column % 2) / width)
            wave = math.cos if column % 2 else math.sin
            assert table[position, column] == pytest.approx(wave(angle), abs=1e-12)


def test_learned_positions_receive_a_gradient():
    rng = np.random.default_rng(2)
    case = hand_made("positions", [random_block(rng, 6, 2, 3, 4)], memory=rng.normal(size=(5, 6)))
    module = TransformerModule(case.weights)
    module(torch.from_numpy(case.x)).sum().backward()
    assert module.memory.grad.shape == (5, 6) and (module.memory.grad != 0).all()


def test_positions_break_the_symmetry_between_tokens():
    rng = np.random.default_rng(3)
    block = random_block(rng, 6, 1, 3, 4)
    z = np.tile(rng.normal(size=(1, 1, 6)), (1, 5, 1))
    from transformula.runtime.reference import run_block

    same, _ = run_block(block, z)
    told_apart, _ = run_block(block, z + sinusoidal(5, 6))
    assert np.allclose(same, same[:, :1])
    assert not np.allclose(told_apart, told_apart[:, :1])
