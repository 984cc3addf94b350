"""Folders of the case formulas, unpacked, and ways to change one number in them."""

import json
import struct
import zipfile
from pathlib import Path

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
