"""A plain Kolmogorov-Arnold network (Liu et al. 2024, arXiv:2404.19756): splines on the edges, sums at the nodes."""

from __future__ import annotations

from itertools import pairwise

import torch

DEGREE = 3


class Layer(torch.nn.Module):
    """Every edge has w_b silu(x) + Σ c_j B_j(x), with cubic B-splines on a fixed grid of [-1, 1]; tanh brings inputs there."""

    def __init__(self, inputs: int, outputs: int, cells: int, first: bool) -> None:
        super().__init__()
        step = 2 / cells
        knots = torch.arange(-DEGREE, cells + DEGREE + 1, dtype=torch.float64) * step - 1
        self.register_buffer("knots", knots)
        self.base = torch.nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.splines = torch.nn.Parameter(0.1 * torch.randn(inputs * (cells + DEGREE), outputs) / inputs**0.5)
        self.first = first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples × inputs to samples × outputs."""
        inside = x if self.first else torch.tanh(x)
        u = inside[..., None]
        basis = ((u >= self.knots[:-1]) & (u < self.knots[1:])).to(x.dtype)
        for k in range(1, DEGREE + 1):
            left = (u - self.knots[: -k - 1]) / (self.knots[k:-1] - self.knots[: -k - 1])
            right = (self.knots[k + 1 :] - u) / (self.knots[k + 1 :] - self.knots[1:-k])
            basis = left * basis[..., :-1] + right * basis[..., 1:]
        return torch.nn.functional.silu(x) @ self.base + basis.flatten(1) @ self.splines


class Kan(torch.nn.Module):
    """Layers of the given widths."""

    def __init__(self, widths: tuple[int, ...], cells: int = 12) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.layers = torch.nn.Sequential(*(Layer(a, b, cells, k == 0) for k, (a, b) in enumerate(pairs)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples × inputs to samples × outputs."""
        result: torch.Tensor = self.layers(x)
        return result
