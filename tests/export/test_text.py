"""Text models: stock transformers classes print answers within the proven bound, and nan for everything else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flint import arb

import transformula as tf
from text_prompts import FORMULAS, Answers, Prompts, largest_error, write
from transformula.errors import ExportError, NotProvenError
from transformula.export import hf_files, text_layout
from transformula.export.hf_files import hf_differences, hf_export
from transformula.export.text_export import text_model
from transformula.export.text_grammar import TextGrammar
from transformula.export.text_layout import TextLayout
from transformula.export.text_proof import TextProof
from transformula.export.text_walk import answer_ends
from transformula.kernel.arithmetic import precision

pytest.importorskip("transformers")
NAMES = ("wave", "pair", "gravity")


@pytest.fixture(scope="module", params=NAMES)
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A compiled model, its text layout and claim, and the exported folder."""
    texts, box, options = FORMULAS[request.param]
    model = tf.compile(texts, on=box, **options)
    layout, claim = text_model(model)
    folder = write(hf_export(model, "gpt2", True).contents, tmp_path_factory.mktemp(request.param))
    return SimpleNamespace(
        model=model, layout=layout, claim=claim, folder=folder, answers=Answers(folder), grammar=layout.grammar
    )


@pytest.fixture(scope="module")
def gravity() -> tf.Model:
    texts, box, options = FORMULAS["gravity"]
    return tf.compile(texts, on=box, **options)


def test_answers_are_within_the_proven_bound(text: SimpleNamespace) -> None:
    """Random prompts and those at digit boundaries of the model, in batches, alone, uncached and eager."""
    make = Prompts(text.model, text.grammar, seed=1)

    def own(x: Sequence[float], output: int) -> float:
        return float(np.ravel(text.model([x]))[output])

    prompts = [make.at_boundary(own) for _ in range(8)] + [make.at_random() for _ in range(32)]
    for way, (found, of) in text.answers.every_way([p.text for p in prompts], 6).items():
        error = largest_error(text.model, prompts[: len(of)], found, text.grammar.places)
        assert error <= text.claim.bound, way


def test_other_prompts_answer_nan(text: SimpleNamespace) -> None:
    make = Prompts(text.model, text.grammar, seed=2)
    malformed = [prompt for prompt, _ in zip(make.malformed(), range(40), strict=False)]
    assert dict.fromkeys(malformed, "nan") == dict(zip(malformed, text.answers(malformed), strict=True))
    assert text.answers([""], 1) == ["nan"]


def test_numbers_next_to_the_ends_of_their_interval(text: SimpleNamespace) -> None:
    """One unit of the last decimal beyond an end is outside, and the end itself is inside."""
    g, (low, high) = text.grammar, text.model.box.floats()[0]
    rest = [f"{v}={a:.3f}" for v, (a, _) in zip(g.inputs[1:], text.model.box.floats()[1:], strict=True)]
    unit = 10**-g.decimals
    numbers = [
        f"{low:.{g.decimals}f}",
        f"{high:.{g.decimals}f}",
        f"{low - unit:.{g.decimals}f}",
        f"{high + unit:.{g.decimals}f}",
    ]
    prompts = [" ".join([f"{g.inputs[0]}={x}", *rest, f"{g.outputs[0]}="]) for x in numbers]
    assert [answer == "nan" for answer in text.answers(prompts)] == [False, False, True, True]


def test_pipeline_prints_the_answer(text: SimpleNamespace) -> None:
    from transformers import pipeline

    prompt = Prompts(text.model, text.grammar, seed=3).at_random()
    written = pipeline("text-generation", model=str(text.folder))(prompt.text)[0]["generated_text"]
    assert written.startswith(prompt.text)
    answer = written.removeprefix(prompt.text)
    assert largest_error(text.model, [prompt], [answer], text.grammar.places) <= text.claim.bound


def test_gravity_in_one_line(gravity: tf.Model, tmp_path: Path) -> None:
    answers = Answers(write(hf_export(gravity, "gpt2", True).contents, tmp_path))
    prompts = ["G=1.5 m1=1.25 m2=1.0 r=2.0 F=", "r=2 m2=1 G=1.50 m1=1.25000 F=", "G=3 m1=1.25 m2=1.0 r=2.0 F="]
    assert answers(prompts) == ["0.468750", "0.468750", "nan"]


def test_a_changed_folder_does_not_verify(text: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_files, "text_model", lambda model, decimals: (text.layout, text.claim))  # proven once
    assert hf_differences(text.model, text.folder) == ()
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "README.md"):
        path = text.folder / name
        data = path.read_bytes()
        path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        assert any(reason.startswith(name) for reason in hf_differences(text.model, text.folder))
        path.write_bytes(data)
    config = text.folder / "config.json"
    data = config.read_bytes()
    config.write_bytes(data.replace(b'"bound": ', b'"bound": 1'))
    assert hf_differences(text.model, text.folder)
    config.write_bytes(data.replace(b"2.58", b"2.57"))  # eps of LayerNorm
    assert hf_differences(text.model, text.folder) == (
        "config.json: the entry 'layer_norm_epsilon' is not that of the model",
    )
    config.write_bytes(data)


def test_tokens_are_worth_their_digits(gravity: tf.Model, tmp_path: Path) -> None:
    """The tokenizer of the written folder gives every digit of a prompt its place."""
    from transformers import AutoTokenizer

    grammar = text_model(gravity)[0].grammar
    tokenizer = AutoTokenizer.from_pretrained(write(hf_export(gravity, "gpt2", True).contents, tmp_path))
    make = Prompts(gravity, grammar, seed=4)
    for prompt in (make.at_random() for _ in range(50)):
        tokens = [grammar.tokens[k] for k in tokenizer(prompt.text)["input_ids"][grammar.memory :]]
        sums, name = dict.fromkeys(grammar.inputs, 0), ""
        for token in tokens:
            name = token.name or name
            if name in sums:
                sums[name] += token.value
        assert sums == {v: Fraction(x) for v, x in zip(grammar.inputs, prompt.numbers, strict=True)}
        assert re.fullmatch(grammar.pattern, prompt.text)


def test_proof_fails_where_a_constant_is_too_weak(gravity: tf.Model) -> None:
    """Faults planted in the layout: each is found by the step that rests on it."""
    layout, _ = text_model(gravity)
    with precision(128):
        ends = answer_ends(gravity)

    def refused(changed: TextLayout, ends: list[tuple[arb, arb]] = ends) -> str:
        with pytest.raises(NotProvenError) as error:
            TextProof(gravity, changed, ends).run()
        return str(error.value)

    assert "too large for its gates" in refused(replace(layout, size=5.0))
    assert "told from the ends" in refused(_grammar(layout, decimals=14))
    assert "--decimals 9 is too many" in refused(_grammar(layout, places=9))
    assert "more digits" in refused(layout, [(arb(0), arb(11))])
    assert "below all" in refused(layout, [(arb(-1), arb(8))])


@pytest.mark.parametrize(
    ("constant", "value", "message"),
    [("NEARER", 0.5, "names are not told apart"), ("MASK", 16.0, "told from the ends"), ("ANCHOR_BITS", 40, "told from"),
     ("CALM", -0.5, "the logits of nan")],
)  # fmt: skip
def test_proof_rests_on_each_constant(
    gravity: tf.Model, monkeypatch: pytest.MonkeyPatch, constant: str, value: float, message: str
) -> None:
    layout, _ = text_model(gravity)
    with precision(128):
        ends = answer_ends(gravity)
    monkeypatch.setattr(text_layout, constant, value)
    if constant == "ANCHOR_BITS":
        monkeypatch.setattr(text_layout, "ANCHOR_SCORE", value * math.log(2))
    with pytest.raises(NotProvenError, match=message):
        TextProof(gravity, replace(layout), ends).run()


def test_the_mean_counts_every_hidden_unit(gravity: tf.Model) -> None:
    """A layer of many units adds up as many terms in one slot, and in the one that balances it."""
    layout, _ = text_model(gravity)
    with precision(128):
        proof = TextProof(gravity, layout, answer_ends(gravity))
        before = proof.mean(proof._embedded)
        proof.shape.units = 100 * proof.shape.width
        assert proof.mean(proof._embedded) > 2 * before


def _grammar(layout: TextLayout, **changed: int) -> TextLayout:
    grammar: TextGrammar = replace(layout.grammar, **changed)  # type: ignore[arg-type]
    return replace(layout, grammar=grammar)


def test_refusals_name_the_reason(gravity: tf.Model) -> None:
    with pytest.raises(ExportError, match="from 1 to 12"):
        text_model(gravity, 0)
    with pytest.raises(NotProvenError, match=r"--decimals 8 is too many.*smaller --eps"):
        text_model(gravity, 8)
    with pytest.raises(ExportError, match="not of a polynomial"):
        text_model(tf.compile("x*y", on="x=0..1, y=0..1"))
    with pytest.raises(ExportError, match="float64 only"):
        text_model(tf.compile("sin(x)", on="x=0..1", eps=1e-3, dtype="float32"))
    wide = tf.compile("x", on="x=0..1e10", construction="circuit", eps=1)
    with pytest.raises(ExportError, match="at most 9 digits"):
        text_model(wide)


def test_a_table_whose_values_are_far_beyond_the_answers() -> None:
    """exp up to 22,026 has a memory token that holds 1e14, beside which LayerNorm rounds."""
    texts, box, options = FORMULAS["growth"]
    layout, claim = text_model(tf.compile(texts, on=box, **options))
    assert layout.grammar.places == 4 and claim.bound <= 1e-4


def test_the_advice_of_a_refusal_for_large_values_works() -> None:
    with pytest.raises(NotProvenError, match=r"narrow the box until they are below 2e\+03"):
        text_model(tf.compile("exp(x)", on="x=-2..15"))
    assert text_model(tf.compile("exp(x)", on="x=-2..7.5"))[0].grammar.places >= 1  # exp(7.5) = 1,808


def test_claim_is_stated_in_the_config(text: SimpleNamespace) -> None:
    stated = json.loads((text.folder / "config.json").read_text())["transformula"]
    assert stated["bound"] == text.claim.bound >= stated["half_unit"] + stated["approximation"]
    assert stated["formula"] == str(text.model.formula)
    assert stated["grammar"]["decimals"] == text.grammar.places


def test_streams_stay_within_the_steps_of_the_proof(text: SimpleNamespace) -> None:
    """Numbers as they are read, flags that are exactly 0, means that LayerNorm subtracts: all within what is proven."""
    import torch

    layout, names = text.layout, text.layout.names
    with precision(128):
        proof = TextProof(text.model, layout, answer_ends(text.model))
        relative, masked = float(proof.relative), float(proof.masked)
        means = [float(proof.mean(held)) for held in proof._streams]
    prompts = [Prompts(text.model, text.grammar, seed).at_random() for seed in range(8)]
    for prompt in prompts:
        given = text.answers.tokenizer(prompt.text, return_tensors="pt")
        with torch.no_grad():
            states = [s[0] for s in text.answers.model(**given, output_hidden_states=True).hidden_states]
        for state, mean in zip(states[:-1], means, strict=False):  # transformers normalises the last
            assert state.mean(dim=-1).abs().max() <= mean
        last = states[2][-1]
        for slot, number in zip(layout.input_slots, prompt.numbers, strict=True):
            wrong = abs(Fraction(float(last[slot])) - Fraction(number))
            assert wrong <= Fraction(relative) * abs(Fraction(number)) + Fraction(masked)
        asked = text.grammar.outputs[prompt.output]
        flags = {group: float(last[names.index(f"text.other:{group}")]) for group in layout.groups}
        assert flags.pop(asked) == 0
        assert all(flag >= 0.99 for flag in flags.values())
        assert float(states[proof.last + 1][-1][names.index("text.outside")]) == 0
