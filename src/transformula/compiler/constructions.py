"""The constructions by name: how their models are built, read, run and counted, and how their proofs are described.

Code that depends on which construction made a model asks this registry; no other module compares names. Nothing heavy
is imported before it is used, so that the command line and the explorer's server may ask too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from transformula.errors import InputError, brief

if TYPE_CHECKING:
    from transformula.compiler.attempts import Attempt, BuildTask
    from transformula.kernel.folder.weights import Weights
    from transformula.kernel.structures.ridge_blocks import Ridge
    from transformula.kernel.syntax.boxes import Box
    from transformula.runtime.program.program_steps import Program

#: Names that a formula may ask for.
Choice = Literal[
    "auto", "polynomial", "corollary", "lookup", "partition", "circuit", "attention-only", "local-polynomials", "yun",
]  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Weights of one layout."""

    #: ridge (Fang's blocks), tables (one layer of softmax tables), circuit (several layers of them), layers (several
    #: layers of softmax heads), stages (of yun), words (of compact), prompts (of in-context), heads (linear-attention)
    name: str
    #: Name of a token that depends on the inputs.
    data: str
    #: Reads the function back from the weights.
    read: Callable[[Weights], Any]
    #: From (weights, their reader, the box or None) to the program; None where the blocks themselves are run.
    program: Callable[[Weights, Callable[[], Any], Box | None], Program] | None
    #: Numbers of the weights that depend on the formula; the second argument reads them, if need be.
    count: Callable[[Weights, Callable[[], Any]], int]


def _imported(module: str, function: str) -> Callable[..., Any]:
    """A function of the package that is imported when it is first called."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module(f"transformula.{module}"), function)(*arguments)

    return call


def _ridge_program(weights: Weights, read: Callable[[], Ridge], box: Box | None) -> Program:
    from transformula.runtime.program.weights_program import ridge_program

    return ridge_program(read())


def _count_ridge(weights: Weights, read: Callable[[], Ridge]) -> int:
    """F, β and b, as Fang counts them."""
    beta = weights.tokens * max(read().degree, 1) * weights.outputs
    return weights.tokens * len(weights.inputs) + beta + weights.outputs


def _table_program(weights: Weights, read: Callable[[], Any], box: Box | None) -> Program:
    from transformula.runtime.program.weights_program import read_tables

    return read_tables(weights, None if box is None else tuple(box.floats()))


def _count_nonzeros(weights: Weights, read: Callable[[], Any]) -> int:
    from transformula.runtime.matrices import nonzeros

    return nonzeros(weights) + weights.memory.nonzeros


_read_ridge = _imported("kernel.structures.ridge_blocks", "read_ridge")
_read_tables = _imported("compiler.table_reading", "read_heads")
_read_circuit = _imported("compiler.table_reading", "read_circuit")
_read_layers = _imported("compiler.table_reading", "read_layers")

RIDGE_FAMILY = Family("ridge", "direction", _read_ridge, _ridge_program, _count_ridge)
TABLE_FAMILY = Family("tables", "data", _read_tables, _table_program, _count_nonzeros)
HEAD_FAMILY = Family("heads", "position", lambda weights: None, None, _count_nonzeros)
PROMPT_FAMILY = Family("prompts", "pair", lambda weights: None, None, _count_nonzeros)
STAGE_FAMILY = Family("stages", "variable", lambda weights: None, None, _count_nonzeros)
WORD_FAMILY = Family("words", "data", _read_circuit, _table_program, _count_nonzeros)
CIRCUIT_FAMILY = Family("circuit", "data", _read_circuit, _table_program, _count_nonzeros)
LAYER_FAMILY = Family("layers", "data", _read_layers, _table_program, _count_nonzeros)


@dataclass(frozen=True)
class Construction:
    """A way from a formula or samples to weights, and the rule that proves them."""

    #: As it is stored in model.json; a description in a few words; the layout of its weights.
    name: str
    title: str
    family: Family
    #: How the checker proves it, in a sentence; another one where the approximation error is zero. A construction that
    #: has that one claims what can be proven where no tolerance is given, instead of aiming at one.
    proof: str
    identity: str = ""
    #: Its tables are cells: at almost every point one token decides.
    sharp: bool = False
    #: From a task to attempts, cheapest first; None if it is not made from a formula.
    attempts: Callable[[BuildTask], Iterator[Attempt]] | None = None
    #: Options it takes: multi_head, layers (a single layer), shape (sequences).
    options: frozenset[str] = frozenset()

    @property
    def exact(self) -> bool:
        """Whether it may have no approximation error at all."""
        return bool(self.identity)

    def program(self, weights: Weights, box: Box, read: Callable[[], Any] | None = None) -> Program:
        """The function of the weights, as steps on arrays; ``read`` gives the reading if there is one already."""
        # a sharp table's proof has the largest score subtracted, so its scores may be anywhere
        assert self.family.program is not None, "the blocks themselves are run"
        return self.family.program(weights, read or (lambda: self.family.read(weights)), None if self.sharp else box)


def made_by(module: str, function: str) -> Callable[[BuildTask], Iterator[Attempt]]:
    """The attempts of a construction, from a module of the compiler that is imported when they are asked for."""
    return _imported(f"compiler.{module}", function)


_ENCLOSED = (
    "Formula and network were enclosed together on pieces of the box, with ball arithmetic and Taylor remainders."
)
POLYNOMIAL = Construction(
    "polynomial", "a polynomial, block by block (Fang et al., Theorem 3.5)", RIDGE_FAMILY,
    "The polynomial was read out of the weights and compared with the formula, coefficient by coefficient.",
    "The polynomial was read out of the weights and compared with the formula in rational arithmetic: they are equal, "
    "so the approximation error is zero, not small.",
    attempts=made_by("polynomial", "polynomial_attempts"), options=frozenset({"multi_head"}),
)  # fmt: skip
COROLLARY = Construction(
    "corollary", "an approximating polynomial (Fang et al., Corollary 3.7)", RIDGE_FAMILY, _ENCLOSED,
    attempts=made_by("corollary", "corollary_attempts"), options=frozenset({"multi_head"}),
)  # fmt: skip
LOOKUP = Construction(
    "lookup", "one layer of solved tables", TABLE_FAMILY, _ENCLOSED,
    attempts=made_by("lookup", "lookup_attempts"), options=frozenset({"layers", "shape"}),
)  # fmt: skip
PARTITION = Construction(
    "partition", "one layer of sharp cells (Gumaan, Theorem 1)", TABLE_FAMILY,
    "In each cell the formula's range was enclosed, and compared with the values that the attention can mix there.",
    sharp=True, attempts=made_by("partition", "partition_attempts"), options=frozenset({"layers", "shape"}),
)  # fmt: skip
CIRCUIT = Construction(
    "circuit", "several layers of tables, one for each nonlinearity", CIRCUIT_FAMILY,
    "The error of every table was bounded on the whole range of its argument, and carried from layer to layer by "
    "proven slopes.",
    attempts=made_by("circuit", "circuit_attempts"), options=frozenset({"shape"}),
)  # fmt: skip
ATTENTION_ONLY = Construction(
    "attention-only", "two softmax layers, no feed-forward layer (Hu et al.)", LAYER_FAMILY,
    "The first layer's distance from a line was bounded piece by piece. In each cell of the second layer, widened by "
    "that distance, the formula's range was compared with the values that the attention can mix there.",
    sharp=True, attempts=made_by("gallery.attention_only", "attention_only_attempts"),
)  # fmt: skip
LOCAL = Construction(
    "local-polynomials", "local polynomials under a softmax partition of unity (Shi and Liao)", LAYER_FAMILY,
    "The local polynomials were read out of the weights and compared with the formula, cell by cell, by Taylor models; "
    "what the layers do with them was bounded for every coefficient between the least and the largest.",
    sharp=True, attempts=made_by("gallery.local_polynomials", "local_attempts"),
)  # fmt: skip
YUN = Construction(
    "yun", "cells, told apart by attention (Yun et al., Theorem 3)", STAGE_FAMILY,
    "The blocks were enclosed on every cell between the seams, and on the whole box. With the formula's range on each "
    "cell this bounds the mean of the error over the box, not the error at every point.",
    sharp=True, attempts=made_by("gallery.yun", "yun_attempts"),
)  # fmt: skip
MEMORIZE = Construction(
    "memorize", "one layer that stores samples", TABLE_FAMILY,
    "At each sample the attention on all the other samples' tokens was bounded; what remains is the sample's own "
    "value.",
    sharp=True,
)  # fmt: skip

COMPACT = Construction(
    "compact", "labels as the bits of words, found by attention and taken apart", WORD_FAMILY,
    "At each sample every number inside was followed: attention picks one token with weight 1, and all numbers after "
    "it are whole.",
    sharp=True,
)  # fmt: skip
IN_CONTEXT = Construction(
    "in-context", "an algorithm, carried out on the pairs of a prompt", PROMPT_FAMILY,
    "Every entry of the weights is what Newton and Schulz's iteration needs; its remainder and all rounding were "
    "bounded over the spectra that the box of prompts allows.",
    "Every entry of the weights is what the algorithm needs: in exact arithmetic the blocks carry out its steps, so "
    "the approximation error is zero, not small.",
)  # fmt: skip
LINEAR_ATTENTION = Construction(
    "linear-attention", "heads of linear attention, learned from data", HEAD_FAMILY,
    "What the heads compute was expanded from their weights in rational arithmetic, and compared with the formula, "
    "coefficient by coefficient.",
    "What the heads compute was expanded from their weights in rational arithmetic: it is the formula, so the "
    "approximation error is zero, not small.",
)  # fmt: skip

CONSTRUCTIONS = {
    c.name: c
    for c in (
        POLYNOMIAL, COROLLARY, LOOKUP, PARTITION, CIRCUIT, ATTENTION_ONLY, LOCAL, YUN, MEMORIZE, COMPACT, IN_CONTEXT,
        LINEAR_ATTENTION,
    )
}  # fmt: skip
#: Constructions that a formula may ask for.
OFFERED: tuple[str, ...] = tuple(name for name in get_args(Choice) if name in CONSTRUCTIONS)


def register(construction: Construction) -> None:
    """Add a construction; docs/architecture.md has a worked example."""
    CONSTRUCTIONS[construction.name] = construction


def chosen(name: str) -> Construction | None:
    """The construction that is asked for; None for ``auto``.

    Examples
    --------
    >>> chosen("lookup").family.name, chosen("auto")
    ('tables', None)
    """
    known = isinstance(name, str)
    if known and name == "auto":
        return None
    found = CONSTRUCTIONS.get(name) if known else None
    if found is None or found.attempts is None:
        raise InputError(f"unknown construction {brief(name)}: choose auto, {', '.join(OFFERED)}")
    return found
