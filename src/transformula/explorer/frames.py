"""What server and worker send each other: a JSON object, and bytes beside it that need no decoding.

A frame is the length of its header (4 bytes, big-endian), the header, then the blobs whose sizes the header
lists.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

#: How many models a worker remembers, so that their files need not travel again.
KEPT_MODELS = 4
#: Exit code of a worker that ran out of memory.
MEMORY_EXIT = 75
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Frame:
    """One message: ``body["event"]`` or ``body["task"]`` says what it is."""

    body: dict[str, Any]
    blobs: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The frame as bytes."""
        head = json.dumps({"body": self.body, "blobs": [len(b) for b in self.blobs]}, allow_nan=False).encode()
        return b"".join((_LENGTH.pack(len(head)), head, *self.blobs))


def _sizes(head: dict[str, Any]) -> Sequence[int]:
    return [int(size) for size in head["blobs"]]


def read_frame(source: BinaryIO) -> Frame | None:
    """The next frame, or None where the other side has closed."""
    length = source.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    head = json.loads(source.read(_LENGTH.unpack(length)[0]))
    return Frame(head["body"], tuple(source.read(size) for size in _sizes(head)))


async def receive_frame(source: asyncio.StreamReader) -> Frame:
    """The next frame; raises `asyncio.IncompleteReadError` where the worker has ended."""
    (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
    head = json.loads(await source.readexactly(length))
    return Frame(head["body"], tuple([await source.readexactly(size) for size in _sizes(head)]))
