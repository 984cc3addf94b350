"""Model.v, written from a folder's files: trusted beside Coq, Transformer.v and Typed.v. The unexpected raises."""

import ast
import json
import re
import struct
from fractions import Fraction
from typing import Any

HEADER = ["Require Import Transformula.Typed.", "Import ListNotations.", "Open Scope R_scope."]
DTYPES = {"float32": ("F32", "f", 23), "float64": ("F64", "d", 52)}
KINDS = {("softmax", 1): "Softmax", ("hardmax", 1): "Hardmax"}
NAMES = re.compile(r"\A\s*([A-Za-z_]\w*?)(\d*)\s*(?:\.\.\s*\1(\d+)\s*)?\Z", re.ASCII)  # x, or x1..x9
WORD = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)", re.ASCII)
SIGNS: dict[Any, str] = {ast.Add: "+", ast.Sub: "-", ast.USub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "^",
                         ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Load: ","}  # fmt: skip


def transcribed(text: str) -> str:
    """A typed formula in the notation of Typed.v. Python's parser sees words by number, hence none of its keywords."""
    said = ["(literal {} {})".format(*Fraction(n).as_integer_ratio()) if n else "v_" + v for n, v in WORD.findall(text)]

    def written(node: Any) -> str:
        if isinstance(node, ast.Name):
            return said[int(node.id[1:])]
        signs = [SIGNS[type(n)] for n in ast.iter_child_nodes(node) if type(n) in SIGNS]
        parts = [written(n) for n in ast.iter_child_nodes(node) if type(n) not in SIGNS]
        assert isinstance(node, ast.Call | ast.UnaryOp) or (len(parts), len(signs)) == (2, 1), "this is no formula"
        listed = isinstance(node, ast.Call) and re.fullmatch("v_([mM]ax|[mM]in|sum|prod|Piecewise)", parts[0])
        return f"({parts[0]} [{'; '.join(parts[1:])}])" if listed else f"({' '.join(parts[:-1] + signs + parts[-1:])})"

    places = iter(range(len(said)))
    marked = WORD.sub(lambda _: f" _{next(places)} ", text.replace("^", "**")).strip()  # 2x stays two words: refused
    assert re.fullmatch(r"([\d_\s+\-*/(),]|[<>]=?)*", marked, re.ASCII), "a formula has foreign characters"
    return written(ast.parse(marked, mode="eval").body)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, whose keys must not be repeated."""
    assert len(dict(pairs)) == len(pairs), "a key stands twice in a JSON object"
    return dict(pairs)


def matrices(data: bytes, model: dict[str, Any]) -> list[str]:
    """The definitions of all stored matrices: the floats, or the rationals of model.json that are near them."""
    start, at, arrays, lines = 8 + int.from_bytes(data[:8], "little"), 0, {}, []
    header, (dtype, code, bits) = json.loads(data[8:start], object_pairs_hook=unique), DTYPES[model["dtype"]]
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, of = (dtype, code) if name.endswith(".values") else ("I32", "i")
        arrays[name] = struct.unpack_from(f"<{entry['shape'][0]:d}{of}", data, start + at)
        place = [at, at := at + struct.calcsize(of) * len(arrays[name])]
        assert entry == {"dtype": kind, "shape": [len(arrays[name])], "data_offsets": place}, "an array is malformed"
    for name, (rows, columns) in model["shapes"].items():
        places = list(zip(arrays.pop(f"{name}.rows"), arrays.pop(f"{name}.cols"), strict=True))
        assert all(0 <= r < rows and 0 <= c < columns for r, c in places) and len(set(places)) == len(places)
        floats = [Fraction(v) for v in arrays.pop(f"{name}.values")]
        values = [Fraction(v) for v in model["exact"].get(name, floats)]
        assert all(abs(v - f) * 2**bits <= abs(v) for v, f in zip(values, floats, strict=True)), "a rational is far off"
        entries = (f"Entry {r} {c} ({v.numerator}) {v.denominator}" for (r, c), v in zip(places, values, strict=True))
        lines.append(f"Definition {re.sub('[^a-z_0-9]', '_', name)}_ : matrix := [{'; '.join(entries)}].")
    assert start + at == len(data) and not arrays and set(model["exact"]) <= set(model["shapes"]), "an array too many"
    return lines


def expected(weights: bytes, *texts: bytes) -> str:
    """The whole of Model.v, from the contents of model.safetensors, model.json and certificate.json."""
    model, claim = (json.loads(text, object_pairs_hook=unique) for text in texts)
    lines, claimed, names, outputs = HEADER + matrices(weights, model), "", list[str](), model["shapes"]["readout"][0]
    for b, block in enumerate(model["blocks"]):
        k = block if type(block) is int else b  # an earlier block once more
        block, heads, at = model["blocks"][k], list[str](), f"blocks_{k}_feed_forward_"
        layer = f"(Some (Layer {at}hidden_ {at}hidden_bias_ {at}output_ {at}output_bias_))"
        for h, head in enumerate(block["heads"]):
            size, at = model["shapes"][f"blocks.{k}.heads.{h}.query"][0], f"blocks_{k}_heads_{h}_"
            output = f"(Some {at}output_)" if head["output"] else None
            heads.append(f"Head {size:d} {at}query_ {at}key_ {at}value_ {output}")
        parts = f"[{'; '.join(heads)}] {layer if block['feed_forward'] else None}"
        lines.append(f"Definition block_{b} : block := Block {KINDS[block['kind'], block['scale']]} {parts}.")
    parts = f"embedding_ memory_ [{'; '.join(f'block_{b}' for b in range(len(model['blocks'])))}] readout_ bias_"
    lines.append(f"Definition model_ : model := Model {model['tokens']:d} {len(model['slots'])} {parts}.")
    for part in re.split(r",(?![^()]*\))", model["box"]) if "box" in model else []:
        said, ends = part.split("=")
        [(stem, first, last)], (low, high) = NAMES.findall(said), map(transcribed, ends.split(".."))
        for k in range(int(first or 0), int(last or first or 0) + 1):
            names.append(f"{stem}{f'{k:0{len(first)}d}' if first else ''}")
            claimed += f"\n  inside {low} x_{names[-1]} {high} ->"  # x_, since the ends may say v_pi and mean π
    joined, meant, given = (" ".join(f.format(n) for n in names) for f in ("x_{}", "v_{}", "(variable x_{})"))
    for o, text in zip(range("box" in model and outputs), model.get("formulas", []), strict=True):
        lines.append(f"Definition formula_{o} ({meant} : typed) : typed :=\n  {transcribed(text)}%typed.")
        claimed += f"\n  matches (output model_ (inputs [x_{'; x_'.join(names)}]) {o}) (formula_{o} {given}) bound /\\"
    for x, y in zip(*(model.get("samples", {"x": [], "y": []})[key] for key in "xy"), strict=True):
        assert (len(x), len(y)) == (len(model["inputs"]), outputs), "a sample has too few numbers, or too many"
        x, y = (["(literal ({}) {})".format(*Fraction(v).as_integer_ratio()) for v in row] for row in (x, y))
        for o, v in enumerate(y):
            claimed += f"\n  matches (output model_ (inputs (map result [{'; '.join(x)}])) {o}) {v} bound /\\"
    named = names == model["inputs"] and len({*names}) == len(names)
    assert named == ("box" in model) != ("samples" in model) and "shape" not in model and "\n  matches" in claimed
    lines.append(f"Definition bound : R := {Fraction(claim['eps']) - abs(Fraction(claim['rounding']))}.")
    return "\n".join([*lines, f"Definition claim : Prop :={joined and f' forall {joined} : R,'}{claimed}\n  True.\n"])
