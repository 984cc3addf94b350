"""Linear attention: heads that were planted and learned again, and layers with any weights at all."""

from functools import cache

import numpy as np

import transformula as tf
from transformula.kernel.folder.weights import Attention, Block, Head, Weights
from transformula.learn.linear_attention_fit import Heads
from transformula.runtime.matrices import dense_matrix

#: heads, outputs, numbers a token, tokens, whether a constant 1 is added, whether every token asks
PLANTED = {
    "one head": (1, 1, 2, 3, True, False),
    "two heads": (2, 1, 3, 4, False, False),
    "each token": (2, 2, 2, 3, True, True),
}


@cache
def fitted(name: str) -> tf.LinearAttentionRegressor:
    """The regressor that learned from planted heads."""
    heads, outputs, width, positions, constant, each = PLANTED[name]
    rng = np.random.default_rng(0)
    d = width + constant
    truth = Heads(rng.normal(size=(heads, outputs, d)), rng.normal(size=(heads, d, d)), constant)
    Z = rng.uniform(-1, 1, (300, positions, width))
    return tf.LinearAttentionRegressor(positions, each=each, constant=constant).fit(Z, truth(Z, each))


@cache
def attention_model(name: str, dtype: str = "float64") -> tf.Model:
    """Its heads as a Transformer."""
    model = fitted(name)
    names = [f"x{k + 1}" for k in range(model.n_features_in_)]
    return model.to_transformer(box=dict.fromkeys(names, (-1, 1)), dtype=dtype)


def random_layer(rng: np.random.Generator, inputs: tuple[str, ...], spread: float, dtype: str) -> Weights:
    """A layer of linear attention whose matrices hold numbers of very different sizes, anywhere."""
    tokens, width, outputs, depth = (int(rng.integers(1, 4)) for _ in range(4))

    def matrix(rows: int, columns: int, density: float = 0.6) -> object:
        sizes = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-spread, spread / 3, (rows, columns))
        return dense_matrix((sizes * (rng.random((rows, columns)) < density)).astype(dtype), dtype)

    heads = tuple(
        Head(matrix(2, width), matrix(2, width), matrix(depth, width), matrix(width, depth))
        for _ in range(int(rng.integers(0, 4)))
    )
    slots = tuple(f"s{k}" for k in range(width))
    body = matrix(tokens * width, len(inputs)), matrix(tokens, width), (Block(Attention(heads, "linear")),)
    return Weights(inputs, slots, tokens, *body, matrix(outputs, tokens * width), matrix(outputs, 1), dtype)
