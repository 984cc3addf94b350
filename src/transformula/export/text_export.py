"""Text in, text out: a compiled model as a folder with a stock GPT-2 and a stock tokenizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from flint import arb, fmpq

from transformula.errors import ExportError, NotProvenError, brief
from transformula.export.onnx_files import status_entry
from transformula.export.text_grammar import NAN, TextGrammar
from transformula.export.text_layout import Fence, TextLayout
from transformula.export.text_proof import BITS, DecimalsError, FenceError, TextClaim, TextProof
from transformula.export.text_walk import answer_ends
from transformula.export.text_weights import text_arrays, text_config
from transformula.kernel.arithmetic import at_most, precision
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.folder.description import CERTIFICATE_FILE, WEIGHTS_FILE
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.folder.weights import Weights
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.model import Model

#: Constructions whose rule the proof extends.
CONSTRUCTIONS = ("lookup", "circuit")
#: Most tokens in front of a prompt, integer digits of a number, decimals of an answer, and outputs.
MAX_MEMORY, MAX_INTEGERS, MAX_PLACES, MAX_OUTPUTS = 1024, 9, 12, 16
#: float64 holds 15 decimal digits: more of them cannot be told apart.
_DIGITS = 15


def text_contents(model: Model, layout: TextLayout, claim: TextClaim, proven: bool = True) -> dict[str, bytes | str]:
    """The files of a proven layout, of a model that is ``proven``; always the same bytes."""
    from safetensors.numpy import save

    return {
        WEIGHTS_FILE: save(text_arrays(layout), {"format": "pt"}),
        **text_config(layout, _stated(model, layout, claim) | {"status": status_entry(proven)}),
        "tokenizer.json": layout.grammar.tokenizer(),
        "tokenizer_config.json": layout.grammar.tokenizer_config(),
        "README.md": _card(model, layout.grammar, claim),
        CERTIFICATE_FILE: model.certificate.to_json(),
    }


def stated_decimals(config: Any) -> int | None:
    """The decimals that config.json states if it is that of a text model."""
    try:
        return int(config["transformula"]["grammar"]["decimals"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def text_model(model: Model, decimals: int | None = None) -> tuple[TextLayout, TextClaim]:
    """The layout and its proof, with as many decimals of the inputs as can be told apart."""
    _check_kind(model, decimals)
    weights = unpack(model.packed)[0]
    with precision(BITS):
        ends = answer_ends(model)
        lengths = _lengths(ends)
        integers = max(len(str(math.floor(round_up(model.box.magnitude(k))))) for k in range(model.box.dimension))
        if max(*lengths, integers) > MAX_INTEGERS:
            raise ExportError(f"a text model reads and prints at most {MAX_INTEGERS} digits before the point")
        negative = frozenset(
            v for v, low in zip(model.box.variables, model.box.lower, strict=True) if range_of(low, {})[0] < 0
        )
        names = _output_names(model.box, weights.outputs)
        places = range(_places(model), 0, -1) if decimals is None else [decimals]
        found = [(i, p) for p in places for i in range(_DIGITS - integers, 0, -1)]
        refused: dict[int, NotProvenError] = {}
        for most, last in found:
            if last in refused:
                continue
            grammar = TextGrammar(model.box.variables, names, negative, integers, most, last, lengths, weights.tokens)
            layout = TextLayout(grammar, weights, _fences(model.box, most), 10.0 ** max(lengths) + 4)
            try:
                return layout, TextProof(model, layout, ends).run()
            except FenceError:
                continue
            except DecimalsError as error:
                refused[last] = error
    if refused:
        raise refused[min(refused)]
    raise NotProvenError("no decimal of an input can be told from the ends of its interval: widen the box")


def _check_kind(model: Model, decimals: int | None) -> None:
    if not isinstance(model.formula, Formula) or model.construction not in CONSTRUCTIONS or model.sequence is not None:
        kind = model.construction if model.sequence is None else "sequence"
        raise ExportError(f"a text model is made of a formula's lookup or circuit without positions, not of a {kind}")
    if model.weights.dtype != "float64":
        raise ExportError("a text model is proven in float64 only: compile without --dtype float32")
    if decimals is not None and decimals not in range(1, MAX_PLACES + 1):
        raise ExportError(f"--decimals is from 1 to {MAX_PLACES}, not {brief(decimals)}")
    if model.weights.tokens > MAX_MEMORY:
        raise ExportError(f"a text model has at most {MAX_MEMORY} memory tokens, not {model.weights.tokens}")
    if model.weights.outputs > MAX_OUTPUTS:
        raise ExportError(f"a text model has at most {MAX_OUTPUTS} outputs, not {model.weights.outputs}")


def _output_names(box: Box, count: int) -> tuple[str, ...]:
    """F, or F1, F2, ..; with underscores if a variable has that name."""
    stem = "F"
    while any(v == stem or v.removeprefix(stem).isdigit() for v in box.variables):
        stem += "_"
    return (stem,) if count == 1 else tuple(f"{stem}{k + 1}" for k in range(count))


def _places(model: Model) -> int:
    """The most decimals whose half unit is at least the certificate's bound."""
    bound = model.certificate.bound * 1.25  # LayerNorm costs a little
    return max(1, min(MAX_PLACES, math.floor(-math.log10(2 * bound)) if bound > 0 else MAX_PLACES))


def _lengths(ends: Sequence[tuple[arb, arb]]) -> tuple[int, int]:
    """Digits before the point of the largest answers above and below zero; 0 if none is negative."""
    most = max(round_up(high) for _, high in ends) + 0.06
    least = max(round_up(-low) for low, _ in ends)
    return len(str(max(0, math.floor(most)))), len(str(math.floor(least + 0.06))) if least > 0 else 0


def _fences(box: Box, decimals: int) -> tuple[Fence, ...]:
    unit, found = fmpq(1, 10**decimals), []
    for low, high in zip(box.lower, box.upper, strict=True):
        first = {(end / unit).ceil() for end in range_of(low, {})}
        last = {(end / unit).floor() for end in range_of(high, {})}
        if len(first) > 1 or len(last) > 1:
            raise NotProvenError(f"the ends {low}..{high} are too near to a decimal number to tell which side it is on")
        ends = (int(first.pop()) * 2 - 1, int(last.pop()) * 2 + 1)
        found.append(Fence(*(Fraction(end, 2 * 10**decimals) for end in ends)))
    return tuple(found)


def _stated(model: Model, layout: TextLayout, claim: TextClaim) -> dict[str, Any]:
    """The claim, for config.json."""
    return {
        "formula": str(model.formula),
        "box": str(model.box),
        "grammar": layout.grammar.stated(),
        "claim": "|printed - formula| <= bound for every prompt of the grammar with its numbers in the box",
        "bound": claim.bound,
        "approximation": claim.approximation,
        "rounding": claim.rounding,
        "half_unit": claim.half,
        "reading": claim.reading,
        "weights_sha256": model.certificate.weights_sha256,
    }


def example_prompt(weights: Weights, box: Box, grammar: TextGrammar) -> str:
    """A prompt near the middle of the box."""
    middles = [f"{(low + high) / 2:.{min(grammar.decimals, 3)}f}" for low, high in box.floats()]
    return " ".join(f"{v}={x}" for v, x in zip(weights.inputs, middles, strict=True)) + f" {grammar.outputs[0]}="


def _card(model: Model, grammar: TextGrammar, claim: TextClaim) -> str:
    stated, prompt = grammar.stated(), example_prompt(model.weights, model.box, grammar)
    assert isinstance(model.formula, Formula)
    outputs = "\n".join(f"    {name} = {text}" for name, text in zip(grammar.outputs, model.formula.texts, strict=True))
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [transformula]
---

# A formula that answers in text

{outputs}

on {model.box}. A stock GPT2LMHeadModel and a stock tokenizer, compiled, not trained:

    from transformers import pipeline
    pipeline("text-generation", model=FOLDER)("{prompt}")

Prompts: `{stated["prompt"]}`; {stated["order"]}. Numbers: {stated["number"]}. Numbers outside the box and malformed
prompts answer `{NAN}`.

Proven: for every such prompt with its numbers in the box, greedy decoding in float64 prints {grammar.places} decimals,
at most {at_most(claim.bound)} from the formula (half a unit of the last is {0.5 * 10.0**-grammar.places:g}). Check it:
`transformula verify MODEL --hf FOLDER`.
"""
