"""Text models beside their formulas: prompts at random, at digit boundaries of formula and model, and malformed ones.

Each prompt is answered by the stock `transformers` classes, from a folder that `export --text` would write, and its
answer is compared with the formula in ball arithmetic at the numbers of the prompt. At a boundary of some digit the
formula, or the model's own value, is within 1e-11 of a number where that digit changes. All answers must be within the
proven bound, one by one or in batches, with the cache or without, and malformed prompts must answer nan. The script
fails if one is not. ``python benchmarks/text_prompts.py [--random N] [--boundary N] [NAME ...]``
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from flint import arb, fmpq
from rich.console import Console
from rich.table import Table

import transformula as tf
from transformula.export.hf_files import hf_export
from transformula.export.text_export import text_model
from transformula.export.text_grammar import TextGrammar
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose

#: Formulas of one to nine variables: text, box, options.
FORMULAS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "wave": (["sin(x)"], "x=-3..3", {"construction": "lookup"}),
    "growth": (["exp(x)"], "x=-2..10", {}),
    "pair": (["sqrt(x**2 + y**2)", "x*sin(y)"], "x=-2..2, y=1..2", {"construction": "circuit"}),
    "gravity": (["G*m1*m2/r**2"], "G=1..2, m1=1..2, m2=1..2, r=1..3", {}),
    "area": (["a*b + c*d"], "a=-90..90, b=0..1000, c=1..2, d=-3..3", {"construction": "circuit", "eps": 1e-3}),
    "nine": (
        ["a*b/c + sin(d)*e + exp(-f)*g - h*k"],
        "a=1..2, b=1..2, c=1..3, d=0..3, e=0..1, f=0..1, g=-1..1, h=0..2, k=0..2",
        {},
    ),
}
_HALVINGS = 60
_BATCH = 200


class Prompt(NamedTuple):
    """A prompt, the output it asks for, and the decimals of its numbers in the order of the variables."""

    text: str
    output: int
    numbers: tuple[str, ...]


class Prompts:
    """Prompts of a model's grammar."""

    def __init__(self, model: tf.Model, grammar: TextGrammar, seed: int = 0) -> None:
        self.model, self.grammar, self.random = model, grammar, random.Random(seed)
        self.ends = model.box.floats()

    def _written(self, numbers: Sequence[str], output: int) -> Prompt:
        parts = [f"{v}={x}" for v, x in zip(self.grammar.inputs, numbers, strict=True)]
        self.random.shuffle(parts)
        return Prompt(f"{' '.join(parts)} {self.grammar.outputs[output]}=", output, tuple(numbers))

    def _number(self, value: float, low: float, high: float, decimals: int) -> str:
        """The nearest decimal number inside the interval."""
        unit = Fraction(1, 10**decimals)
        steps = min(max(round(Fraction(value) / unit), -(-Fraction(low) // unit)), Fraction(high) // unit)
        return decimal(int(steps), decimals)

    def at_random(self) -> Prompt:
        """Any numbers of decimals, one number in five at an end of its interval."""
        g, pick, numbers = self.grammar, self.random, []
        for low, high in self.ends:
            value = pick.choice([low, high]) if pick.random() < 0.2 else pick.uniform(low, high)
            numbers.append(self._number(value, low, high, pick.randint(2, g.decimals)))
        return self._written(numbers, pick.randrange(len(g.outputs)))

    def at_boundary(self, value: Callable[[Sequence[float], int], float]) -> Prompt:
        """Numbers between two points of the box where a digit of ``value`` changes."""
        g, pick = self.grammar, self.random
        while True:
            output = pick.randrange(len(g.outputs))
            ends = [[pick.uniform(*pair) for pair in self.ends] for _ in range(2)]
            sides = sorted((value(x, output), x) for x in ends)
            place = pick.randint(0, g.places)
            span = sides[0][0] + pick.random() * (sides[1][0] - sides[0][0])
            target = float(round(span, place)) + pick.choice([-0.5, 0.5]) * 10.0**-g.places
            if not sides[0][0] < target < sides[1][0]:
                continue
            low, high = (np.array(x) for _, x in sides)
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if value(middle.tolist(), output) < target else (low, middle)
            numbers = [self._number(x, *pair, g.decimals) for x, pair in zip(low, self.ends, strict=True)]
            return self._written(numbers, output)

    def malformed(self) -> Iterator[str]:
        """Prompts outside the grammar or the box."""
        g, pick = self.grammar, self.random
        name = g.inputs[0]
        while True:
            text, _, numbers = self.at_random()
            other = dict(zip(g.inputs, numbers, strict=True))
            first = f"{name}={other[name]}"
            beyond = pick.choice([decimal(10**g.decimals * int(self.ends[0][1] + 1) + 1, g.decimals), "9" * g.integers])
            yield pick.choice([
                text[:-1], text[1:], text + "1", text + " ", " " + text, text.upper() + "!", text.replace("=", ":", 1),
                text.replace(first, f"{first} {first}"), text.replace(f"{first} ", ""), text.replace(" ", "  ", 1),
                text.replace(first, f"{name}=+{other[name]}"), text.replace(first, f"{name}=--{other[name]}"),
                text.replace(first, f"{name}={beyond}"), text.replace(first, f"{name}="), text.replace(first, f"{name}=.5"),
                text.replace(first, f"{name}={'0' * g.integers}{other[name]}"), text.replace(first, f"{name}=1e0"),
                text.replace(first, f"{name}=1.{'0' * (g.decimals + 1)}"), text.replace(first, f"{name}=１"),
                text.replace(first, f"{name}={other[name]}<s>"), f"<s>{text}", f"{text}<pad>", f"{text}nan", f"{text}{text}",
                "".join(pick.choices("0123456789.=- xyzF<>?\\n", k=pick.randint(1, 40))), "nan", "?", text.replace(first, f"{name}=1,5"),
            ])  # fmt: skip


def decimal(steps: int, decimals: int) -> str:
    """steps·10^−decimals as a decimal number."""
    whole, part = divmod(abs(steps), 10**decimals)
    return f"{'-' if steps < 0 else ''}{whole}" + (f".{part:0{decimals}d}" if decimals else "")


def formula_value(model: tf.Model, prompt: Prompt) -> arb:
    """The formula at the numbers of a prompt, as a ball."""
    with precision(200):
        exact = [Fraction(x) for x in prompt.numbers]
        values = {v: arb(fmpq(x.numerator, x.denominator)) for v, x in zip(model.box.variables, exact, strict=True)}
        return enclose(model.formula.outputs[prompt.output], values)


class Answers:
    """The stock classes of transformers over an exported folder."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(1)  # matrices this small gain nothing from more
        self.torch = torch
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def __call__(self, texts: Sequence[str], batch: int = _BATCH, **options: Any) -> list[str]:
        """The text after each prompt."""
        found: list[str] = []
        for start in range(0, len(texts), batch):
            given = self.tokenizer(list(texts[start : start + batch]), return_tensors="pt", padding=True)
            with self.torch.no_grad():
                ids = self.model.generate(**given, **options)
            ids = ids[:, given["input_ids"].shape[1] :]
            found += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return found

    def every_way(self, texts: Sequence[str], alone: int) -> dict[str, tuple[list[str], Sequence[str]]]:
        """Answers in batches and, of the first few, one by one, without the cache and with eager attention."""
        few = texts[:alone]
        ways = {"batch": (self(texts), texts), "alone": (self(few, 1), few)}
        ways["uncached"] = self(few, use_cache=False), few
        ways["alone, uncached"] = self(few, 1, use_cache=False), few
        self.model.set_attn_implementation("eager")
        ways["eager"] = self(few), few
        self.model.set_attn_implementation("sdpa")
        return ways


def write(files: dict[str, bytes | str], folder: Path) -> Path:
    """The files of an export in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def largest_error(model: tf.Model, prompts: Sequence[Prompt], answers: Sequence[str], places: int) -> float:
    """The largest |printed − formula|, infinite where an answer is not a number of that many decimals."""
    worst = 0.0
    for prompt, answer in zip(prompts, answers, strict=True):
        whole, point, part = answer.partition(".")
        if not (point and whole.removeprefix("-").isdigit() and part.isdigit() and len(part) == places):
            return float("inf")
        exact = Fraction(answer)
        with precision(200):
            off = abs(arb(fmpq(exact.numerator, exact.denominator)) - formula_value(model, prompt)).upper()
        worst = max(worst, float(off))
    return worst


def measure(name: str, randoms: int, boundaries: int) -> tuple[list[str], bool]:
    """One row of the table, and whether every answer is as proven."""
    texts, box, options = FORMULAS[name]
    model = tf.compile(texts, on=box, **options)
    started = time.perf_counter()
    layout, claim = text_model(model)
    proven = time.perf_counter() - started
    grammar = layout.grammar
    make = Prompts(model, grammar)

    def own(x: Sequence[float], output: int) -> float:
        return float(np.ravel(model([x]))[output])

    def formula(x: Sequence[float], output: int) -> float:
        values = {v: arb(t) for v, t in zip(model.box.variables, x, strict=True)}
        return float(enclose(model.formula.outputs[output], values).mid())

    prompts = [make.at_random() for _ in range(randoms)]
    prompts += [make.at_boundary(own if k % 2 else formula) for k in range(boundaries)]
    make.random.shuffle(prompts)
    with tempfile.TemporaryDirectory() as folder:
        files = hf_export(model, "gpt2", True).contents
        answers = Answers(write(files, Path(folder)))
        ways = answers.every_way([p.text for p in prompts], min(100, len(prompts)))
        errors = {
            way: largest_error(model, prompts[: len(of)], found, grammar.places) for way, (found, of) in ways.items()
        }
        malformed = [text for text, _ in zip(make.malformed(), range(200), strict=False)]
        wrong = sum(answer != "nan" for answer in answers(malformed))
    worst = max(errors.values())
    config = answers.model.config
    nonzero = sum(int((p != 0).sum()) for p in answers.model.parameters())
    row = [name, str(len(grammar.inputs)), f"{config.n_layer} x {config.n_embd}", f"{nonzero:,}"]
    row += [
        f"{len(files['model.safetensors']) / 1e6:.1f} MB",
        str(grammar.places),
        f"{worst:.4g}",
        f"{claim.bound:.4g}",
    ]
    row += [f"{len(prompts):,}", f"{200 - wrong} of 200", f"{proven:.1f} s"]
    return row, worst <= claim.bound and not wrong


def main() -> int:
    """Print the table; 1 if an answer is not as proven."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(FORMULAS))
    parser.add_argument("--random", type=int, default=500)
    parser.add_argument("--boundary", type=int, default=100)
    given = parser.parse_args()
    table = Table("formula", "inputs", "layers x width", "nonzeros", "weights", "decimals", "largest error", "proven",
                  "prompts", "malformed: nan", "proof")  # fmt: skip
    good = True
    for name in given.names:
        row, held = measure(name, given.random, given.boundary)
        table.add_row(*row)
        good = good and held
    Console(width=150).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
