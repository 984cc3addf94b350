"""Whether Model.v says what a model folder holds: every number, every index and the formula, node by node.

Trusted beside Coq and Transformer.v: the standard library alone, nothing of the generator. Model.v must be what this
program makes of the folder's files, line by line; its bound is read, and compared with eps - rounding.
"""

import json
import re
import struct
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

from transformula.coq.transcribed_terms import TranscribedTerm, shown, transcribed_box

HEADER = "Require Import Reals List NArith ZArith.\nRequire Import Transformula.Transformer."
LAYER = ("hidden", "hidden_bias", "output", "output_bias")
FORMATS, BITS = {"I32": "i", "F32": "f", "F64": "d"}, {"float32": 23, "float64": 52}


def matrices(folder: Path, exact: dict[str, list[str]], bits: int) -> dict[str, str]:
    """Every stored matrix in Coq, by name: rationals where model.json has them (near the floats), else the floats."""
    data = (folder / "model.safetensors").read_bytes()
    start, arrays = 8 + int.from_bytes(data[:8], "little"), {}
    for name, entry in json.loads(data[8:start]).items():
        low, high = (start + at for at in entry["data_offsets"])
        arrays[name] = struct.unpack(f"<{entry['shape'][0]}{FORMATS[entry['dtype']]}", data[low:high])
    found = {}
    for name in {array.rpartition(".")[0] for array in arrays}:
        floats = [Fraction(v) for v in arrays[f"{name}.values"]]
        values = [Fraction(v) for v in exact.get(name, floats)]
        assert all(abs(v - f) <= abs(v) / 2**bits for v, f in zip(values, floats, strict=True))
        entries = zip(arrays[f"{name}.rows"], arrays[f"{name}.cols"], values, strict=True)
        found[name] = f"[{'; '.join(f'Entry {r} {c} ({v.numerator}) {v.denominator}' for r, c, v in entries)}]"
    return found


def block_lines(model: dict[str, Any], stored: dict[str, str]) -> Iterator[str]:
    """The definitions of heads, layers, blocks and the model."""
    blocks: list[str] = []
    for b, block in enumerate(model["blocks"]):
        blocks.append(blocks[block] if type(block) is int else f"block_{b}")
        if type(block) is int:
            continue
        for h, head in enumerate(block["heads"]):
            at = f"blocks.{b}.heads.{h}."
            matrix = " ".join(stored[at + part] for part in ("query", "key", "value"))
            output = f"(Some {stored[at + 'output']})" if head["output"] else "None"
            yield f"Definition head_{b}_{h} : head := Head {model['shapes'][at + 'query'][0]} {matrix} {output}."
        if block["feed_forward"]:
            parts = (stored[f"blocks.{b}.feed_forward.{part}"] for part in LAYER)
            yield f"Definition layer_{b} : layer := Layer {' '.join(parts)}."
        heads = "; ".join(f"head_{b}_{h}" for h in range(len(block["heads"])))
        layer = f"(Some layer_{b})" if block["feed_forward"] else "None"
        kind = {("softmax", 1): "Softmax", ("hardmax", 1): "Hardmax"}[block["kind"], block["scale"]]
        yield f"Definition block_{b} : block := Block {kind} [{heads}] {layer}."
    yield from (f"Definition {m}_ : matrix := {stored[m]}." for m in ("embedding", "memory", "readout", "bias"))
    size = f"{model['tokens']} {len(model['slots'])} embedding_ memory_ [{'; '.join(blocks)}]"
    yield f"Definition model_ : model := Model {size} readout_ bias_."


def expected(folder: Path, bound: Fraction) -> str:
    """The whole of Model.v."""
    model = json.loads((folder / "model.json").read_text())
    lines = [HEADER, "Import ListNotations.", "Open Scope R_scope."]
    lines += block_lines(model, matrices(folder, model["exact"], BITS[model["dtype"]]))
    ends = list(transcribed_box(model["box"]))
    assert model["inputs"] == [name for name, _, _ in ends], "the inputs are not the box's variables"
    names, goals = " ".join(f"v_{name}" for name in model["inputs"]), []
    for o, text in enumerate(model["formulas"]):
        term = TranscribedTerm(text, model["inputs"])
        conditions = "".join(f"\n  {condition} /\\" for condition in term.conditions)
        lines.append(f"Definition formula_{o} ({names} : R) : R :=\n  {term.coq}.")
        lines.append(f"Definition defined_{o} ({names} : R) : Prop :={conditions}\n  True.")
        distance = f"output model_ (inputs [{names.replace(' ', '; ')}]) {o} - formula_{o} {names}"
        goals.append(f"  defined_{o} {names} /\\ Rabs ({distance}) <= bound /\\\n")
    given = "".join(f"\n  {low} <= v_{name} <= {high} ->" for name, low, high in ends)
    claim = f"Definition claim : Prop := forall {names} : R,{given}\n{''.join(goals)}  True."
    return "\n".join([*lines, f"Definition bound : R := {shown(bound)}.", claim, ""])


def check(folder: Path, text: str) -> str:
    """Why Model.v is not a transcription of the folder; empty if it is one."""
    claim = json.loads((folder / "certificate.json").read_text())
    said = re.search(r"^Definition bound : R := \(?(\d+)(?: / (\d+)\))?\.$", text, re.MULTILINE)
    assert said, "Model.v states no bound"
    bound = Fraction(int(said[1]), int(said[2] or 1))
    if bound > Fraction(claim["eps"]) - Fraction(claim["rounding"]):
        return "the bound in Model.v is above eps - rounding"
    pairs = zip_longest(expected(folder, bound).split("\n"), text.split("\n"))
    wrong = next((n for n, (wanted, found) in enumerate(pairs, 1) if wanted != found), 0)
    return f"line {wrong} of Model.v is not what the folder holds" if wrong else ""


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1]), Path(sys.argv[2]).read_text()) or None)
