"""ONNX files and their claims: writing them, and comparing one with a model folder.

A file is judged by building it again: the graph of the folder's weights and the metadata of its certificate
are written anew and compared with the file's content. Nothing in the file is run, no path in it is
followed, and differences are named. So a file that passes is the graph of weights whose claim the checker
proves, and the claim's rounding part covers it in any runtime that keeps to the rounding model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from transformula.compiler.constructions import CONSTRUCTIONS
from transformula.errors import ExportError, ModelFileError
from transformula.export.onnx_interface import INTERFACE, Interface
from transformula.formula.sample_target import stored_target
from transformula.kernel.folder.description import CERTIFICATE_FILE, Certificate, add_up
from transformula.kernel.folder.model_files import Packed, read_packed, read_text, unpack
from transformula.kernel.rules.rule_table import check_shape
from transformula.proven import named, stated
from transformula.runtime.onnx_blocks import graph_bytes
from transformula.runtime.onnx_graph import MAX_BYTES, import_onnx
from transformula.runtime.program.onnx_backend import program_bytes

#: The metadata entry that names the graph of a file, and its two values.
GRAPH = "graph"
PROGRAM = "program"
BLOCKS = "blocks"
_USUAL = Interface()
_VERSION = re.compile(r"[0-9A-Za-z.+!-]{1,40}", re.ASCII)
_MOST_REASONS = 8
UNVERIFIED = "claimed, not verified"


def this_version() -> str:
    """The library's version, asked at run time: the package's front page is above this layer."""
    return str(import_module(__name__.partition(".")[0]).__version__)


def onnx_bytes(
    packed: Packed,
    certificate: Certificate,
    version: str = "",
    blocks: bool = False,
    interface: Interface = _USUAL,
    *,
    proven: bool,
) -> bytes:
    """The ONNX file of a model, its claim in the metadata; always the same bytes.

    The graph is that of the model's program, or with ``blocks``, or where there is none, that of the Transformer
    as it is written.
    """
    version = version or this_version()
    weights, description = unpack(packed)
    made_by = CONSTRUCTIONS[description.construction]
    blocks = blocks or made_by.family.program is None
    shape = None
    if description.shape is not None:
        check_shape(description, weights)
        shape = description.shape[0], description.shape[1]
    said = claim_entries(packed, certificate, version, proven=proven) | {GRAPH: BLOCKS if blocks else PROGRAM}
    said |= interface.entries
    target = stored_target(description)
    wrapper = interface.around(target, certificate, shape)
    if blocks:
        return graph_bytes(weights, said, shape, version, wrapper)
    return program_bytes(made_by.program(weights, target.box), said, shape, version, wrapper)


def claim_entries(packed: Packed, certificate: Certificate, version: str = "", *, proven: bool) -> dict[str, str]:
    """Metadata of an exported file: formula, box, claim, whether it was proven, and hashes."""
    weights, description = unpack(packed)
    target = stored_target(description)
    return {
        "transformula_version": version or this_version(),
        "formula": json.dumps(list(target.texts)),
        "box": str(target.box),
        "inputs": json.dumps(list(weights.inputs)),
        "construction": certificate.construction,
        "dtype": certificate.dtype,
        **{name: repr(value) for name, value in stated(certificate).items()},
        "status": status_entry(proven),
        **packed.hashes,
        "certificate_sha256": hashlib.sha256(certificate.to_json().encode()).hexdigest(),
    }


def rounded_entries(packed: Packed, certificate: Certificate, rounding: float, *, proven: bool) -> dict[str, str]:
    """Metadata of a file whose arithmetic rounds by another amount than the model's: the claim that holds for it."""
    found = {"rounding": rounding, "bound": add_up(certificate.approximation, rounding)}
    entries = claim_entries(packed, certificate, proven=proven)
    if found["bound"] != certificate.bound:
        entries.pop("relative", None)  # it was proven for the model's own rounding
    return entries | {named(certificate, name): repr(value) for name, value in found.items()}


def status_entry(proven: bool) -> str:
    """The status of the claim in an exported file."""
    return "proven when exported" if proven else UNVERIFIED


def onnx_differences(folder: Path, path: Path) -> tuple[str, ...]:
    """Differences of a file from the ONNX form of a model folder; empty if there are none.

    Raises `ModelFileError` where there is no ONNX file to compare. The folder's own claim is not checked
    here: see `kernel.check.verify_folder`.
    """
    found = _read(path)
    said = _entries(found.metadata_props)
    version = said.get("transformula_version", "")
    if not _VERSION.fullmatch(version):
        version = ""
    proven = said.get("status") != UNVERIFIED  # a file may say less than is true of it
    certificate = Certificate.from_json(read_text(folder, CERTIFICATE_FILE))
    blocks = said.get(GRAPH) == BLOCKS
    interface = Interface.stated(said.get(INTERFACE))
    wanted = onnx_bytes(read_packed(folder), certificate, version, blocks, interface, proven=proven)
    if found.SerializeToString(deterministic=True) == wanted:
        return ()
    expected = import_onnx().ModelProto.FromString(wanted)
    named = list(_model_differences(found, expected)) or ["its parts are in another order or encoding"]
    more = len(named) - _MOST_REASONS
    if more > 0:
        named = [*named[:_MOST_REASONS], f"and {more} more differences"]
    return tuple(f"{path.name}: {text}" for text in named)


def _read(path: Path) -> Any:
    """Parse a file as ONNX; external data stays where it is."""
    onnx = import_onnx()
    try:
        if not path.is_file():
            raise ModelFileError(f"there is no file {path}")
        if path.stat().st_size > 2 * MAX_BYTES:
            raise ModelFileError(f"{path} is too large to be an ONNX file")
        found = onnx.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from None
    except (ModelFileError, ExportError):
        raise
    except Exception as error:  # protobuf's DecodeError; its class depends on the implementation
        raise ModelFileError(f"{path} is not an ONNX file: {error}") from None
    if not found.graph.node:
        raise ModelFileError(f"{path} is not an ONNX file: it has no graph")
    return found


def _model_differences(found: Any, wanted: Any) -> Iterator[str]:
    entries = _entries(found.metadata_props)
    if len(entries) != len(found.metadata_props):
        yield "a metadata entry is given twice"
    yield from _by_name("metadata", entries, _entries(wanted.metadata_props))
    if any(t.data_location or t.external_data for t in found.graph.initializer):
        yield "it keeps numbers in another file, which is not read"
    theirs, ours = ({t.name: t for t in m.graph.initializer} for m in (found, wanted))
    if len(theirs) != len(found.graph.initializer):
        yield "two initializers have one name"
    yield from _by_name("initializer", theirs, ours)
    for part in ("input", "output"):
        if [*getattr(found.graph, part)] != [*getattr(wanted.graph, part)]:
            yield f"the graph's {part} is not {_signature(getattr(wanted.graph, part))}"
    yield from _node_differences(found.graph.node, wanted.graph.node)
    if [(o.domain, o.version) for o in found.opset_import] != [(o.domain, o.version) for o in wanted.opset_import]:
        yield "it uses other operator sets"
    left, right = (_without_named(m) for m in (found, wanted))
    if left != right:
        yield "something else in the file is not what transformula writes (functions, fields, header)"


def _entries(props: Any) -> dict[str, str]:
    return {p.key: p.value for p in props}


def _by_name(noun: str, found: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    yield from (f"the {noun} {name} is missing" for name in wanted if name not in found)
    yield from (f"the {noun} {_short(name)} is not part of this model" for name in found if name not in wanted)
    for name, value in wanted.items():
        if name in found and found[name] != value:
            yield f"the {noun} {name} is not that of the folder"


def _node_differences(found: Any, wanted: Any) -> Iterator[str]:
    if len(found) != len(wanted):
        yield f"the graph has {len(found)} nodes, not {len(wanted)}"
    for theirs, ours in zip(found, wanted, strict=False):
        if theirs != ours:
            yield f"node {ours.name} ({ours.op_type}) is changed"


def _signature(values: Any) -> str:
    dims = ", ".join(d.dim_param or str(d.dim_value) for d in values[0].type.tensor_type.shape.dim)
    return f"{values[0].name} ({dims})"


def _without_named(model: Any) -> bytes:
    """The file without the parts that were compared by name."""
    rest = type(model)()
    rest.CopyFrom(model)
    for part in ("node", "initializer", "input", "output"):
        rest.graph.ClearField(part)
    rest.ClearField("opset_import")
    rest.ClearField("metadata_props")
    data: bytes = rest.SerializeToString(deterministic=True)
    return data


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:37] + "...")
