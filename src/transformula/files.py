"""The one writer: every file and folder that transformula writes goes through here, whole or not at all.

A file or folder is staged beside its place and renamed into it, so an interrupt or a full disk leaves the earlier
contents. Links are followed, and stay links. Only regular files are replaced: a device, a pipe, a socket or a
folder is refused. A replaced file keeps its mode and its owner; a new one gets what the umask leaves.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from transformula.errors import InputError, SavingError, brief

#: The path that means standard output.
STDOUT = Path("-")

#: Why a folder that exists may not be replaced; empty if it may.
WhyNot = Callable[[Path], str]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def as_path(given: object) -> Path:
    """A path from text or a path; anything else is refused."""
    try:
        return Path(given)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"a file or folder is given as text or as a path, not {brief(given)}") from None


def write_file(path: str | Path, data: bytes | str, parents: bool = False) -> None:
    """Write a whole file, text as UTF-8, to a path or to standard output; ``parents`` makes the folders above it.

    Examples
    --------
    >>> write_file("-", "to whoever reads\\n")
    to whoever reads
    >>> write_file("/dev/null", b"")
    Traceback (most recent call last):
    transformula.errors.SavingError: cannot write /dev/null: it is a device, not a file
    """
    if Path(path) == STDOUT and isinstance(data, str) and not hasattr(sys.stdout, "buffer"):
        sys.stdout.write(data)  # a notebook's or a test's stdout takes text only
        return
    if parents:
        with _sentences(path):
            Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    with opened(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes its place when the block ends well; ``-`` is standard output."""
    with _sentences(path):
        if Path(path) == STDOUT:
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        place, old = _place(path)
        staging = _beside(place)
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(descriptor, "wb") as file:
                yield file
                _keep(file.fileno(), old)
                _settle(file)
            os.replace(staging, place)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise


def check_folder(folder: str | Path, why_not: WhyNot | None = None) -> None:
    """Refuse a folder that could not be written later, before work is spent on what goes into it."""
    with _sentences(folder):
        place = Path(os.path.realpath(folder))
        _check_old(folder, place, why_not)
        there = next(one for one in (place, *place.parents) if one.exists())
        if not there.is_dir():
            raise SavingError(f"cannot write {folder}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise SavingError(f"cannot write {folder}: Permission denied")


def write_folder(folder: str | Path, files: Mapping[str, bytes | str], why_not: WhyNot) -> None:
    """Write a whole folder or nothing. One that exists is replaced, unless ``why_not`` has a reason against that."""
    with _sentences(folder):
        place = Path(os.path.realpath(folder))
        old = place.stat() if place.exists() else None
        _check_old(folder, place, why_not)
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = _beside(place)
        staging.mkdir()
        try:
            for name, content in files.items():
                with open(staging / name, "wb") as file:
                    file.write(content.encode() if isinstance(content, str) else content)
                    _settle(file)
            if old is not None:
                staging.chmod(stat.S_IMODE(old.st_mode))
            _swap(staging, place)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _check_old(folder: str | Path, place: Path, why_not: WhyNot | None) -> None:
    if why_not is not None and place.exists() and (reason := why_not(place)):
        raise SavingError(f"{folder} exists and {reason}")


@contextmanager
def _sentences(path: str | Path) -> Iterator[None]:
    """Errors of the system as sentences; a closed pipe is left to the caller."""
    if "\0" in str(path):
        raise SavingError("cannot write to a path with a null character in it")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "to standard output" if Path(path) == STDOUT else path
        raise SavingError(f"cannot write {name}: {error.strerror or error}") from None


def _place(path: str | Path) -> tuple[Path, os.stat_result | None]:
    """The place a path leads to, and what is there now, if that is a file we may replace."""
    place = Path(os.path.realpath(path))
    try:
        old = os.stat(path)
    except FileNotFoundError:
        return place, None
    if not stat.S_ISREG(old.st_mode):
        kind = _KINDS.get(stat.S_IFMT(old.st_mode), "something else")
        raise SavingError(f"cannot write {path}: it is {kind}, not a file")
    if not os.access(place, os.W_OK):
        raise SavingError(f"cannot write {path}: Permission denied")
    return place, old


def _beside(place: Path) -> Path:
    return place.with_name(f".transformula-{secrets.token_hex(8)}")


def _keep(descriptor: int, old: os.stat_result | None) -> None:
    """Give the new file the owner and the mode of the one it replaces."""
    if old is not None:
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _settle(file: BinaryIO) -> None:
    """On the disk before the rename, so that a crash does not leave an empty file in the place of a full one."""
    file.flush()
    os.fsync(file.fileno())


def _swap(staging: Path, folder: Path) -> None:
    if not folder.exists():
        staging.rename(folder)
        return
    old = _beside(folder)
    folder.rename(old)
    try:
        staging.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
