"""Formulas in use: evaluated in floats, repeated over positions, searched for their largest values."""

from transformula.kernel.boxes import Box, Formula
from transformula.kernel.expression import Expr
from transformula.kernel.parsing import parse

__all__ = ["Box", "Expr", "Formula", "parse"]
