"""Folders of the case formulas, unpacked, ways to change one number in them, and theorems without their axioms."""

import json
import struct
import tempfile
import zipfile
from pathlib import Path

from transformula.coq.coq_check import objection
from transformula.coq.coq_compiler import Workshop
from transformula.coq.coq_files import MODEL, PROOF, STATEMENT, VERDICT

CASES = Path(__file__).parents[1] / "kernel" / "cases.zip"


def case_names():
    """Every stored case, by name and format."""
    with zipfile.ZipFile(CASES) as archive:
        return sorted({name.partition("/")[0] for name in archive.namelist()})


def case_folder(name, place):
    """One case as a model folder."""
    folder = Path(place) / name
    folder.mkdir(parents=True)
    with zipfile.ZipFile(CASES) as archive:
        for entry in archive.namelist():
            if entry.startswith(f"{name}/"):
                (folder / entry.rpartition("/")[2]).write_bytes(archive.read(entry))
    return folder


def change_array(folder, array, index, change):
    """Replace one number of model.safetensors."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:start])[array]
    kind = {"I32": "<i", "F32": "<f", "F64": "<d"}[entry["dtype"]]
    at = start + entry["data_offsets"][0] + index * struct.calcsize(kind)
    struct.pack_into(kind, data, at, change(struct.unpack_from(kind, data, at)[0]))
    path.write_bytes(bytes(data))


def change_json(folder, name, change):
    """Edit one of a folder's JSON files."""
    body = json.loads((folder / name).read_text())
    change(body)
    (folder / name).write_text(json.dumps(body))


def coq_contents(folder):
    """What Model.v is written from."""
    return [(folder / name).read_bytes() for name in ("model.safetensors", "model.json", "certificate.json")]


def compiled_theorem(folder, files):
    """Why a theorem is refused, or nothing, and its files as compiled; its axioms, which take 8 s to list, are not."""
    if reason := objection(folder, files):
        return [reason], []
    asked = {name: text for name, text in files.items() if name.endswith(".v")}
    asked[VERDICT] = asked[VERDICT].replace("Print Assumptions accepted.", "")
    workshop = Workshop(asked, frozenset(asked) - {MODEL, STATEMENT, PROOF, VERDICT}, 1)
    with tempfile.TemporaryDirectory() as place:
        compiled = workshop.compile(Path(place), asked)
    refused = [f"coqc does not accept {file.name}, {file.why}" for file in compiled if file.printed is None]
    assert refused or len(compiled) == len(asked), "a file was not compiled"
    return refused, compiled
