r"""Fang's model with F, β and b as trainable parameters.

    f(x) = b + Σ_{k ≤ n} Σ_{s ≤ q} β_{k,s} (F_k·x)^s

The encoder blocks are fixed (Theorem 3.5 asks for no training there), so the fast path of
`transformers.ridge` computes the same function, and its gradient, without any n × n array. Inputs and
targets are standardised outside; the signs (−1)^s of the blocks are absorbed in β.
"""

from __future__ import annotations

from math import comb

import numpy as np
import torch
from torch import Tensor, nn

from transformula.learn.distinct_rows import Floats
from transformula.learn.linear_start import ALMOST_NOTHING, LinearStart
from transformula.learn.solvers.ridge_forms import RidgeForm


def paper_directions(n_features: int, degree: int) -> int:
    """How many tokens the paper's experiments use: C(d + q + 1, q).

    Examples
    --------
    >>> paper_directions(2, 2), paper_directions(10, 5)
    (10, 4368)
    """
    return comb(n_features + degree + 1, degree)


class FangModule(nn.Module):
    """F (n × d), β (n × q × outputs) and b, with the powers by Horner's rule."""

    def __init__(self, inputs: int, outputs: int, degree: int, directions: int, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        self.F = nn.Parameter(normal(directions, inputs) / inputs**0.5)
        self.beta = nn.Parameter(0.1 * normal(directions, degree, outputs) / directions**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, dtype=torch.float64))

    def start_from(self, linear: LinearStart) -> None:
        """Begin with a linear function: F'β₁ = slopes, and almost nothing in higher powers."""
        slopes, offset = (torch.from_numpy(v).to(self.b) for v in (linear.slopes, linear.offset))
        with torch.no_grad():
            self.beta[:, 1:] *= ALMOST_NOTHING
            first = self.beta[:, 0]
            self.beta[:, 0] = first + torch.linalg.pinv(self.F.T) @ (slopes - self.F.T @ first)
            self.b.copy_(offset)

    def forward(self, x: Tensor) -> Tensor:
        """Samples × inputs to samples × outputs."""
        t = x @ self.F.T
        power, out = t, t @ self.beta[:, 0]
        for s in range(1, self.beta.shape[1]):
            power = power * t
            out = out + power @ self.beta[:, s]
        return out + self.b

    def ridge_form(self, center: Floats, scale: Floats, offset: Floats, spread: Floats) -> RidgeForm:
        """The function of the original variables: inputs (x − center)/scale, outputs · spread + offset."""
        F, beta, b = (p.detach().cpu().double().numpy() for p in (self.F, self.beta, self.b))
        return RidgeForm(F / scale, beta * spread, np.asarray(b * spread + offset), center)
