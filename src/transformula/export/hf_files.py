"""Hugging Face folders: writing one, and comparing one with a model folder.

A folder is judged by building it again: all files are written anew from the verified model folder, the rounding of the
architecture's norms is proven anew, and everything is compared byte by byte, tensors and config entries by name.
Nothing in the folder is run, and a file that does not belong to it is a difference: from_pretrained may read files that
nobody looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformula import proven
from transformula.errors import ExportError, InputError, ModelFileError, NotProvenError, brief
from transformula.export.hf_layout import ARCHITECTURES, REMOTE, HfLayout, hf_layout, remote_code, remote_layout
from transformula.export.norm_rounding import Norms, norms_off, prove_normed
from transformula.export.onnx_files import UNVERIFIED, rounded_entries
from transformula.export.text_export import stated_decimals, text_contents, text_model
from transformula.export.text_layout import TextLayout
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import at_most
from transformula.kernel.folder.description import CERTIFICATE_FILE, WEIGHTS_FILE, add_up
from transformula.model_folder import HF_CARD, HF_CIRCUIT, HF_CODE, HF_CONFIG

if TYPE_CHECKING:
    from transformula.model import Model

#: Constructions whose models are softmax attention over tables.
SOFTMAX = ("lookup", "circuit", "partition", "attention-only", "local-polynomials", "memorize")
#: Constructions with hardmax attention, whose formula can be compiled as a circuit instead.
POLYNOMIALS = ("polynomial", "corollary")
#: The entry of config.json that holds the claim.
CLAIM = "transformula"
_MOST_REASONS = 8
#: Bytes of a file that are read to name a difference, and of a config.
_MOST_BYTES, _MOST_CONFIG = 2**31, 2**24


class HfExport(NamedTuple):
    """A folder for transformers: its files, what is proven of it, and its layout, that of text with a tokenizer."""

    contents: dict[str, bytes | str]
    rounding: float
    bound: float
    layout: HfLayout | TextLayout


def hf_export(
    model: Model, arch: str, text: bool = False, decimals: int | None = None, *, proven: bool = True
) -> HfExport:
    """Prove what a model computes in an architecture, with ``text`` as digits, and make the files of its folder."""
    if decimals is not None and not text:
        raise ExportError("--decimals only applies to --text")
    if text:
        layout, claim = text_model(model, decimals)
        return HfExport(text_contents(model, layout, claim, proven), claim.rounding, claim.bound, layout)
    rounding = hf_rounding(model, arch)
    contents = hf_contents(model, arch, rounding, proven=proven)
    return HfExport(contents, rounding, add_up(model.certificate.approximation, rounding), layout_of(model, arch))


def checked_arch(model: Model, arch: str | None, text: bool = False) -> str:
    """The architecture that is asked for, or the default: t5, or gpt2 for text, where one of these can be."""
    if arch is None:
        stock = "gpt2" if text else ARCHITECTURES[0]
        return stock if text or model.construction in (*SOFTMAX, *POLYNOMIALS) else REMOTE
    if arch not in ARCHITECTURES:
        raise InputError(f"the architectures of transformers are {', '.join(ARCHITECTURES)}, not {brief(arch)}")
    if text and arch != "gpt2":
        raise ExportError("a text model is a gpt2: printing takes a causal model")
    return arch


def hf_rounding(model: Model, arch: str) -> float:
    """The proven rounding of a model in an architecture of transformers."""
    if arch == REMOTE:
        return model.certificate.rounding
    width = layout_of(model, arch).config.get("n_embd")
    try:
        proof = prove_normed(model.packed, model.box, _norms(model, arch), width)
    except NotProvenError as error:
        raise NotProvenError(f"the rounding of {arch} in {model.weights.dtype} is not proven: {error}") from None
    if not (math.isfinite(proof.rounding) and proof.rounding >= 0):
        raise NotProvenError(f"the rounding of {arch} in {model.weights.dtype} is not bounded")
    return max(proof.rounding, model.certificate.rounding)


def layout_of(model: Model, arch: str) -> HfLayout:
    """The tensors of a model in an architecture; models that are not plain softmax attention are refused."""
    if arch != REMOTE and model.construction not in SOFTMAX:
        raise ExportError(
            f"no stock architecture of transformers has the attention of a model by {model.construction}: "
            f"use --arch {REMOTE}, or compile with --construction circuit"
        )
    if arch == REMOTE:
        return remote_layout(model.weights, model.sequence)
    if arch == "llama" and model.weights.dtype != "float32":
        raise ExportError("Llama's norms compute in float32: compile with --dtype float32, or use --arch t5 or gpt2")
    return hf_layout(_norms(model, arch), arch, model.sequence)


def _norms(model: Model, arch: str) -> Norms:
    return norms_off(model.packed, model.box, centred=arch == "gpt2")


def hf_contents(model: Model, arch: str, rounding: float, *, proven: bool) -> dict[str, bytes | str]:
    """The files of the folder; always the same bytes."""
    from safetensors.numpy import save

    layout = layout_of(model, arch)
    claim = _claim(model, rounding, proven)
    config = json.dumps({**layout.config, CLAIM: claim}, indent=2, sort_keys=True)
    return {
        HF_CONFIG: config + "\n",
        WEIGHTS_FILE: save(layout.state, {"format": "pt"}),
        **({HF_CODE: remote_code()} if arch == REMOTE else {}),
        HF_CARD: _card(model, layout, arch, claim),
        HF_CIRCUIT: json.dumps(_circuit(model, layout), indent=1) + "\n",
        CERTIFICATE_FILE: model.certificate.to_json(),
    }


def _claim(model: Model, rounding: float, is_proven: bool) -> dict[str, str]:
    entries = rounded_entries(model.packed, model.certificate, rounding, proven=is_proven)
    entries.pop("transformula_version")  # the one entry that nothing could check
    return entries


def _circuit(model: Model, layout: HfLayout) -> dict[str, Any]:
    """Places in this architecture, from 0: slots, tokens, and the wires of the circuit with their expressions."""
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    if model.description.circuit is not None and model.construction != "local-polynomials":
        truth = model.ground_truth
        edges = [asdict(edge) for edge in truth.edges]
        for node in truth.nodes:
            entry = {"layer" if key == "block" else key: value for key, value in asdict(node).items()}
            if node.block is not None and node.head is not None:
                entry["head"] = layout.heads[node.block][node.head]
            nodes.append({**entry, "slot": layout.slots.get(node.name, layout.slots.get(f"x.{node.name}"))})
    labels = model.token_labels
    labels += ("sink",) * (len(layout.tokens) - len(labels))
    tokens = [labels[layout.tokens.index(place)] for place in range(len(labels))]
    return {
        "slots": dict(layout.slots),
        "scales": dict(layout.scales),
        "tokens": tokens,
        "nodes": nodes,
        "edges": edges,
    }


_NAMES = {
    "t5": "stock T5 encoder",
    "gpt2": "stock GPT-2",
    "llama": "stock Llama",
    REMOTE: f"Transformer, its blocks written out in {HF_CODE},",
}
_NORMS = """ without norms; the norms are switched off by
their epsilon and gain, and what they still round is in the rounding above"""
_OLDER = {("t5", "float64"): ", the softmax in float32 of T5 in older transformers"}
_CARD = """---
library_name: transformers
tags:
- transformula
---
# {title}

A {name} whose weights were compiled from a formula, not trained. It needs torch and
transformers {since} or later, no other code.

| | |
| --- | --- |
| formula | {formula} |
| box | {box} |
| inputs, in this order | {inputs} |
| proven | {proven} |
| approximation, rounding | {approximation}, {rounding} |
| number format | {dtype}; not covered: half precision, autocast, TF32{older} |
| status | {status} |

```python
import torch
from transformers import {loader}

model = {loader}.from_pretrained("."{trust})  # this folder
x = torch.tensor([[{centre}]], dtype=model.dtype)  # rows of inputs
{call}
```

`circuit.json` names the layer, head, hidden unit and slot of every sub-expression (all counted from 0), with its proven
range and error. `certificate.json` is the claim about the weights{norms}.

`transformula verify MODEL --hf THIS_FOLDER` proves the claim again from the model folder, builds this folder again and
compares all of its files.
"""


def _card(model: Model, layout: HfLayout, arch: str, claim: Mapping[str, str]) -> str:
    certificate, samples = model.certificate, isinstance(model.formula, Samples)
    bound, rounding = (float(claim[proven.named(certificate, name)]) for name in ("bound", "rounding"))
    where = "at every sample" if samples else "for every input in the box"
    if certificate.mean is not None:
        where = "on average over the box"
    texts = [f"`{text}`" for text in model.formula.texts]
    titles = [text if len(text) <= 80 else f"{text[:77]}..." for text in model.formula.texts[:1]]
    return _CARD.format(
        title=titles[0] if titles else "a memorised table",
        name=_NAMES[arch],
        formula=", ".join(texts) or "a memorised table",
        box=f"`{model.where}`",
        inputs=", ".join(f"`{name}`" for name in model.weights.inputs),
        proven=f"error <= {at_most(bound)} {where}",
        approximation=at_most(certificate.approximation),
        rounding=at_most(rounding),
        dtype=model.weights.dtype,
        older=_OLDER.get((arch, model.weights.dtype), ""),
        since=layout.config["transformers_version"],
        status=claim["status"],
        loader=layout.loader,
        trust=", trust_remote_code=True" if arch == REMOTE else "",
        norms="" if arch == REMOTE else _NORMS,
        centre=", ".join(f"{(low + high) / 2:.6g}" for low, high in model.box.floats()),
        call="\n".join(layout.call),
    )


def hf_arch(path: Path) -> str:
    """The architecture that a folder states. Raises `ModelFileError` where there is no such folder."""
    return str(_read_config(path).get("model_type"))


def hf_differences(model: Model, path: Path) -> tuple[str, ...]:
    """Differences of a folder from the Hugging Face form of a verified model; empty if there are none.

    The model is one that the folder's architecture computes (`compiler.stock_form`). Raises `ModelFileError` where
    there is no such folder to compare.
    """
    config = _read_config(path)
    arch, said = config.get("model_type"), config.get(CLAIM)
    if arch not in ARCHITECTURES:
        return (f"{HF_CONFIG}: model_type is not one of {', '.join(ARCHITECTURES)}",)
    stated = not isinstance(said, dict) or said.get("status") != UNVERIFIED  # it may say less than is true of it
    try:
        decimals = stated_decimals(config)
        wanted = hf_export(model, arch, decimals is not None, decimals, proven=stated).contents
    except (ExportError, NotProvenError) as error:
        return (f"{HF_CONFIG}: {error}",)
    named = list(_differences(path, wanted, config))
    more = len(named) - _MOST_REASONS
    return tuple([*named[:_MOST_REASONS], f"and {more} more differences"] if more > 0 else named)


def hf_bound(path: Path) -> float:
    """The proven bound of a folder that has no differences, norms included."""
    said = _read_config(path)[CLAIM]
    return float(said.get("bound", said.get("mean_bound")))


def _read_config(path: Path) -> dict[str, Any]:
    try:
        plain = (path / HF_CONFIG).stat().st_size <= _MOST_CONFIG and (path / HF_CONFIG).is_file()
        config = json.loads((path / HF_CONFIG).read_text(encoding="utf-8") if plain else "")  # a pipe has no end
    except OSError as error:
        raise ModelFileError(f"cannot read {path / HF_CONFIG}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path / HF_CONFIG} is not JSON") from None
    if not isinstance(config, dict):
        raise ModelFileError(f"{path / HF_CONFIG} does not hold a JSON object")
    return config


def _differences(path: Path, wanted: Mapping[str, bytes | str], config: Mapping[str, Any]) -> Iterator[str]:
    try:
        found = {entry.name: entry for entry in path.iterdir()}
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from None
    yield from (f"{name} is not a file of this export" for name in sorted(found.keys() - wanted.keys()))
    for name, contents in wanted.items():
        data = contents if isinstance(contents, bytes) else contents.encode()
        if name not in found:
            yield f"{name} is missing"
        elif not _is_plain(found[name]):
            yield f"{name} is not a plain file"
        elif found[name].stat().st_size != len(data) or found[name].read_bytes() != data:
            yield from _named(name, found[name], data, config)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _named(name: str, path: Path, data: bytes, config: Mapping[str, Any]) -> Iterator[str]:
    """Differences inside a file, by name where it has entries."""
    pairs: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
    if name == HF_CONFIG:
        pairs = [("entry", config, json.loads(data))]
    elif name == WEIGHTS_FILE and path.stat().st_size <= _MOST_BYTES:
        pairs = [("tensor", _tensors(path.read_bytes()), _tensors(data))]
    listed = False
    for noun, theirs, ours in pairs:
        for key in sorted(theirs.keys() | ours.keys()):
            if key not in ours or key not in theirs or theirs[key] != ours[key]:
                listed = True
                what = "is missing" if key not in theirs else "is not that of the model" if key in ours else "is extra"
                yield f"{name}: the {noun} {key[:60]!r} {what}"
    if not listed:
        yield f"{name} is not the one of this model"


def _tensors(data: bytes) -> dict[str, Any]:
    """Tensors of a safetensors file, each as its header and bytes; none if it cannot be read."""
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        rest = data[8 + size :]
        tensors = {}
        for name, entry in header.items():
            if name != "__metadata__":
                low, high = entry["data_offsets"]
                tensors[name] = entry["dtype"], entry["shape"], rest[low:high]
        return tensors
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
