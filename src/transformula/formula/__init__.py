"""Formulas as users write them, evaluated in floats; samples and prompts as other targets."""

from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

__all__ = ["Box", "Expr", "Formula", "parse"]
