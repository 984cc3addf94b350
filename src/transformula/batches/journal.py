"""What a batch has finished, written down a line at a time, so that a killed run goes on where it was.

A folder is written whole or not at all, and its line is written after it. So a line without its folder means that
somebody took the folder away, and a folder without its line is made again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import IO, Any

from transformula.errors import SavingError
from transformula.kernel.folder.description import CERTIFICATE_FILE, MAX_BYTES

JOURNAL = "batch.jsonl"
_STAGING = re.compile(r"\.transformula-[0-9a-f]{16}")


class Journal:
    """Lines of batch.jsonl by name, of which the last one counts. While it is open, no other batch can open it."""

    def __init__(self, out: Path, forget: bool) -> None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._file = open(out / JOURNAL, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise SavingError(f"cannot write {out / JOURNAL}: {error.strerror or error}") from None
        try:
            _lock(self._file, out)
            if forget:
                self._file.truncate(0)
            self.lines = self._read()
            _clear(out)
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> dict[str, dict[str, Any]]:
        lines, text = dict[str, dict[str, Any]](), "\n"
        self._file.seek(0)
        for text in self._file:
            try:
                line = json.loads(text)
                lines[line["name"]] = line
            except (ValueError, KeyError, TypeError):
                continue  # cut off by a kill
        if not text.endswith("\n"):
            self._file.write("\n")
        return lines

    def add(self, line: dict[str, Any]) -> None:
        """Write a line, at once."""
        self.lines[line["name"]] = line
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _lock(file: IO[str], out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two batches in one folder are then the user's to avoid
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SavingError(f"another batch is writing to {out}: wait for it, or choose another folder") from None


def _clear(out: Path) -> None:
    """Take away what a killed batch left half written."""
    for path in out.iterdir():
        if _STAGING.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def certificate_digest(contents: bytes | str) -> str:
    """The fingerprint of a certificate, which holds those of the other files."""
    return hashlib.sha256(contents.encode() if isinstance(contents, str) else contents).hexdigest()


def has_files(folder: Path) -> bool:
    """Whether all files of a model are there."""
    return all((folder / name).is_file() for name in MAX_BYTES)


def is_whole(folder: Path, digest: str | None) -> bool:
    """Whether all files are there, with the certificate that was written down."""
    try:
        return has_files(folder) and certificate_digest((folder / CERTIFICATE_FILE).read_bytes()) == digest
    except OSError:
        return False
