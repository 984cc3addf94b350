"""The prompts that a text model reads, the answers it prints, and the stock tokenizer between text and tokens.

*Prompts.* ``G=1.5 m1=1.25 m2=1.0 r=2.0 F=``: each variable once, in any order, then the name of an output; one space
between them and none elsewhere. A number is ``-`` (where the box reaches below zero), 1 to ``integers`` digits, and
perhaps a point with up to ``decimals`` digits. Everything else is malformed.

*Tokens.* The normalizer replaces a malformed prompt by ``?``, and writes each digit with its place: ``12.5`` becomes
``１¹２⁰.５⁻¹``, so that a token is worth d·10^k wherever it stands. A name is one token together with its equals sign
and the sign of the number. The digits of an answer have their place too, and say whether the number is negative: the
decoder drops these marks.

*States.* The last token says what comes next: the leading digit, the digit of a place, the end, or ``nan``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

MALFORMED, NAN, ANCHOR, PAD, END = "?", "nan", "<s>", "<pad>", "<eos>"
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_MARKS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻₊₋"


class NextDigit(NamedTuple):
    """The state in which the digit of a place is printed next, of a number of this sign."""

    sign: int
    place: int


#: The other states: print the leading digit, the end, or nan.
LEAD, FINISH, REFUSE = "lead", "finish", "refuse"
State = NextDigit | str


@dataclass(frozen=True)
class TextToken:
    """One entry of the vocabulary: its value sign·digit·10^place, the name it is, and the state after it."""

    text: str
    value: Fraction = Fraction(0)
    name: str = ""
    after: State = REFUSE
    special: bool = False


class Cell(NamedTuple):
    """The leading digit of an answer: sign·f + h is in digit·10^place .. (digit + 1)·10^place."""

    sign: int
    digit: int
    place: int


@dataclass(frozen=True)
class TextGrammar:
    """Names, signs and numbers of digits of prompts and answers.

    ``negative`` are the inputs whose box reaches below zero; ``places`` are the decimals of an answer, ``lengths`` its
    largest numbers of integer digits above and below zero (0 if no answer is negative), and ``memory`` the number of
    constant tokens in front of a prompt, the anchor included.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    negative: frozenset[str]
    integers: int
    decimals: int
    places: int
    lengths: tuple[int, int]
    memory: int

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Leading digits in the order of the numbers that begin with them."""

        def above(sign: int) -> list[Cell]:
            length = self.lengths[sign < 0]
            return [Cell(sign, d, k) for k in range(length) for d in range(10) if d or not k]

        return (*reversed(above(-1)), *above(1))

    @cached_property
    def states(self) -> tuple[NextDigit, ...]:
        """States in which a digit is printed."""
        found = {token.after for token in self.tokens if isinstance(token.after, NextDigit)}
        return tuple(sorted(found))

    @cached_property
    def tokens(self) -> tuple[TextToken, ...]:
        """The vocabulary, in the order of the ids."""
        return tuple(self._tokens())

    @property
    def longest(self) -> int:
        """The largest number of tokens of a prompt with its answer."""
        number = 1 + self.integers + 1 + self.decimals
        return self.memory + len(self.inputs) * number + 1 + max(self.lengths) + self.places + 1

    @property
    def digits(self) -> int:
        """The largest number of tokens with a value in a prompt and its answer."""
        return len(self.inputs) * (self.integers + self.decimals) + max(self.lengths) + self.places

    def _tokens(self) -> Iterator[TextToken]:
        for text in (ANCHOR, PAD, END, *(f"<m{m}>" for m in range(1, self.memory))):
            yield TextToken(text, special=True)
        yield TextToken(MALFORMED)
        yield TextToken(".")
        yield TextToken(NAN, after=FINISH)
        for name in self.inputs:
            for minus in ("", "-") if name in self.negative else ("",):
                yield from (TextToken(f"{space}{name}={minus}", name=name + minus) for space in ("", " "))
        yield from (TextToken(f" {name}=", name=name, after=LEAD) for name in self.outputs)
        for place in range(-self.decimals, self.integers):
            yield from (TextToken(_read_digit(d, place), d * Fraction(10) ** place) for d in range(10))
        for cell in self.cells:
            yield self._printed(cell, lead=True)
        for sign in (1, -1):
            for place in range(-self.places, self.lengths[sign < 0] - 1):
                yield from (self._printed(Cell(sign, d, place), lead=False) for d in range(10))

    def _printed(self, cell: Cell, lead: bool) -> TextToken:
        sign, digit, place = cell
        return TextToken(
            self.printed(cell, lead),
            sign * digit * Fraction(10) ** place,
            after=NextDigit(sign, place - 1) if place > -self.places else FINISH,
        )

    def printed(self, cell: Cell, lead: bool) -> str:
        """The text of a digit of an answer, with its marks."""
        sign, digit, place = cell
        mark = "₋" if sign < 0 else "₊" if lead else ""
        return ("-" if lead and sign < 0 else "") + f"{digit}{'.' if place == 0 else ''}{_raised(place)}{mark}"

    @property
    def pattern(self) -> str:
        """The regular expression of a whole prompt."""
        number = f"[0-9]{{1,{self.integers}}}(?:\\.[0-9]{{0,{self.decimals}}})?"
        given = "|".join(f"{re.escape(v)}={'-?' if v in self.negative else ''}{number}" for v in self.inputs)
        each = "".join(f"(?=(?:.* )?{re.escape(v)}=)" for v in self.inputs)
        asked = "|".join(map(re.escape, self.outputs))
        return f"{each}(?:(?:{given}) ){{{len(self.inputs)}}}(?:{asked})="

    def tokenizer(self) -> str:
        """The text of tokenizer.json."""
        ids = {token.text: number for number, token in enumerate(self.tokens)}
        lead = [ANCHOR, *(f"<m{m}>" for m in range(1, self.memory))]
        names = "|".join(sorted(map(re.escape, (*self.inputs, *self.outputs)), key=len, reverse=True))
        rules = [_replace(rf"\A(?!{self.pattern}\z)[\s\S]*\z", MALFORMED)]
        for place in range(-self.decimals, 0):  # a digit still has plain digits on its left
            before = rf"(?<=\.[0-9]{{{-place - 1}}})"
            rules += [_replace(f"{before}{d}", _read_digit(d, place)) for d in range(10)]
        for place in reversed(range(self.integers)):  # and on its right; a name's digits are followed by "="
            after = rf"(?=[0-9]{{{place}}}[. ])"
            rules += [_replace(rf"(?<=[=\-{_MARKS}]){d}{after}", _read_digit(d, place)) for d in range(10)]
        added = [
            {"id": n, "content": t.text, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for n, t in enumerate(self.tokens)
            if t.special
        ]
        sequence = {"Sequence": {"id": "A", "type_id": 0}}
        return _json({
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": rules},
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": f" ?(?:{names})=-?|[０-９][{_MARKS}]+|[.?]"},
                "behavior": "Isolated",
                "invert": False,
            },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [*({"SpecialToken": {"id": t, "type_id": 0}} for t in lead), sequence],
                "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in lead},
            },
            "decoder": {"type": "Sequence", "decoders": [_replace(f"[{_MARKS}]", ""), {"type": "Fuse"}]},
            "model": {"type": "WordLevel", "vocab": ids, "unk_token": MALFORMED},
        })  # fmt: skip

    def tokenizer_config(self) -> str:
        """The text of tokenizer_config.json; special tokens that a prompt spells out are plain, malformed text."""
        return _json({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": ANCHOR,
            "eos_token": END,
            "pad_token": PAD,
            "unk_token": MALFORMED,
            "padding_side": "left",
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": self.longest,
        })  # fmt: skip

    def stated(self) -> dict[str, object]:
        """The grammar in words and numbers, for config.json and the card."""
        shape = f"1 to {self.integers} digits, perhaps a point and up to {self.decimals} decimals"
        sign = f"; '-' only for {', '.join(v for v in self.inputs if v in self.negative)}" if self.negative else ""
        return {
            "prompt": " ".join(f"{v}=NUMBER" for v in self.inputs) + f" {self.outputs[0]}=",
            "order": "variables in any order, each once, separated by one space",
            "number": shape + (sign or "; no sign"),
            "outputs": list(self.outputs),
            "decimals": self.places,
            "otherwise": NAN,
        }


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _replace(pattern: str, content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _raised(place: int) -> str:
    return str(place).translate(_RAISED)


def _read_digit(digit: int, place: int) -> str:
    """A digit of a prompt at its place: fullwidth, so that it is no plain digit to the rules that follow."""
    return chr(ord("０") + digit) + _raised(place)
