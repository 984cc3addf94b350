"""Whether Model.v says what a model folder holds: every number, every index and the formula, node by node.

Trusted beside Coq and Transformer.v: the standard library alone, nothing of the generator. Model.v must be, line by
line, what this program makes of the folder's files; only its bound is read, and compared with eps - rounding.
"""

import json
import re
import struct
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from transformula.coq.transcribed_terms import TranscribedTerm, shown

HEADER = "Require Import Reals List NArith ZArith.\nRequire Import Transformula.Transformer.\n"
FORMATS = {"I32": "i", "F32": "f", "F64": "d"}
NUMBERED = re.compile(r"(\w*?)(\d+)\s*\.\.\s*\1(\d+)")


def matrices(folder: Path, exact: dict[str, list[str]]) -> dict[str, str]:
    """Every stored matrix in Coq, by name: rationals where model.json has them, else the floats."""
    data = (folder / "model.safetensors").read_bytes()
    start, arrays = 8 + int.from_bytes(data[:8], "little"), {}
    for name, entry in json.loads(data[8:start]).items():
        low, high = (start + at for at in entry["data_offsets"])
        arrays[name] = struct.unpack(f"<{entry['shape'][0]}{FORMATS[entry['dtype']]}", data[low:high])
    found = {}
    for name in {array.rpartition(".")[0] for array in arrays}:
        values = map(Fraction, exact.get(name, arrays[f"{name}.values"]))
        entries = zip(arrays[f"{name}.rows"], arrays[f"{name}.cols"], values, strict=True)
        found[name] = f"[{'; '.join(f'Entry {r} {c} ({v.numerator}) {v.denominator}' for r, c, v in entries)}]"
    return found


def box(text: str) -> Iterator[tuple[str, str, str]]:
    """The variables of a box as typed, with their ends in Coq."""
    for part in re.split(r",(?![^()]*\))", text):
        names, ends = (side.strip() for side in part.split("="))
        low, high = (TranscribedTerm(end, []).coq for end in ends.split(".."))
        many = NUMBERED.fullmatch(names)
        for k in range(int(many[2]), int(many[3]) + 1) if many else [0]:
            yield f"{many[1]}{k:0{len(many[2])}d}" if many else names, low, high


def block_lines(model: dict[str, Any], stored: dict[str, str]) -> Iterator[str]:
    """The definitions of heads, layers, blocks and the model."""
    blocks: list[str] = []
    for b, block in enumerate(model["blocks"]):
        blocks.append(blocks[block] if type(block) is int else f"block_{b}")
        if type(block) is int:
            continue
        assert block["scale"] == 1, "scores are scaled"
        for h, head in enumerate(block["heads"]):
            prefix = f"blocks.{b}.heads.{h}."
            parts = " ".join(stored[prefix + part] for part in ("query", "key", "value"))
            output = f"(Some {stored[prefix + 'output']})" if head["output"] else "None"
            size = model["shapes"][prefix + "query"][0]
            yield f"Definition head_{b}_{h} : head := Head {size} {parts} {output}."
        if block["feed_forward"]:
            names = ("hidden", "hidden_bias", "output", "output_bias")
            parts = " ".join(stored[f"blocks.{b}.feed_forward.{part}"] for part in names)
            yield f"Definition layer_{b} : layer := Layer {parts}."
        heads = "; ".join(f"head_{b}_{h}" for h in range(len(block["heads"])))
        layer = f"(Some layer_{b})" if block["feed_forward"] else "None"
        kind = {"softmax": "Softmax", "hardmax": "Hardmax"}[block["kind"]]
        yield f"Definition block_{b} : block := Block {kind} [{heads}] {layer}."
    yield from (f"Definition {m}_ : matrix := {stored[m]}." for m in ("embedding", "memory", "readout", "bias"))
    size = f"{model['tokens']} {len(model['slots'])} embedding_ memory_ [{'; '.join(blocks)}]"
    yield f"Definition model_ : model := Model {size} readout_ bias_."


def expected(folder: Path, bound: Fraction) -> str:
    """The whole of Model.v."""
    model = json.loads((folder / "model.json").read_text())
    lines = [HEADER + "Import ListNotations.\nOpen Scope R_scope."]
    lines += block_lines(model, matrices(folder, model["exact"]))
    ends = list(box(model["box"]))
    assert model["inputs"] == [name for name, _, _ in ends], "the inputs are not the box's variables"
    names = " ".join(f"v_{name}" for name in model["inputs"])
    goals = []
    for o, text in enumerate(model["formulas"]):
        term = TranscribedTerm(text, model["inputs"])
        conditions = "".join(f"\n  {condition} /\\" for condition in term.conditions)
        lines.append(f"Definition formula_{o} ({names} : R) : R :=\n  {term.coq}.")
        lines.append(f"Definition defined_{o} ({names} : R) : Prop :={conditions}\n  True.")
        distance = f"output model_ (inputs [{names.replace(' ', '; ')}]) {o} - formula_{o} {names}"
        goals.append(f"  defined_{o} {names} /\\ Rabs ({distance}) <= bound /\\\n")
    lines.append(f"Definition bound : R := {shown(bound)}.")
    given = "".join(f"\n  {low} <= v_{name} <= {high} ->" for name, low, high in ends)
    return "\n".join([*lines, f"Definition claim : Prop := forall {names} : R,{given}\n{''.join(goals)}  True."]) + "\n"


def check(folder: Path, text: str) -> str:
    """Why Model.v is not a transcription of the folder; empty if it is one."""
    claim = json.loads((folder / "certificate.json").read_text())
    found = re.search(r"^Definition bound : R := \(?(\d+)(?: / (\d+)\))?\.$", text, re.MULTILINE)
    if found is None:
        return "Model.v states no bound"
    bound = Fraction(int(found[1]), int(found[2] or 1))
    if bound > Fraction(claim["eps"]) - Fraction(claim["rounding"]):
        return f"the bound {float(bound):g} of Model.v is above eps - rounding"
    lines = zip(expected(folder, bound).split("\n"), [*text.split("\n"), ""], strict=False)
    wrong = next((n for n, (a, b) in enumerate(lines, 1) if a != b), 0)
    return f"line {wrong} of Model.v is not what the folder holds" if wrong or text != expected(folder, bound) else ""


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1]), Path(sys.argv[2]).read_text()) or None)
