"""Proofs made by this process. Nothing else is called proven, whatever a folder says about itself.

A folder's certificate is a claim: anyone who changes the weights can recompute the hashes. So the word *proven* is
reserved for contents that the kernel has accepted in this process, known by their fingerprint; all others are
*claimed*.

The kernel's check runs in processes of its own (`transformula.kernel.isolation`). A few are kept, so that the first
check pays for starting one and the others do not; checks from several threads run side by side. The contents of the
files travel to the process, not the path of the folder: the answer is about the very bytes that were read here.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, LifoQueue
from threading import BoundedSemaphore

import flint
import numpy

from transformula.budget import ONE_THREAD
from transformula.errors import NotProvenError
from transformula.kernel import check
from transformula.kernel.check import Verification
from transformula.kernel.folder.description import Certificate
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.isolation import from_json, send
from transformula.kernel.rules.rule_table import RULES

#: The code of a process that checks. The rules that most models need are imported before it forks.
_START = """
import sys
sys.path[:0] = sys.argv[1:]
from transformula.kernel.isolation import serve
from transformula.kernel.rules import polynomial_rule, softmax_rule
serve()
"""
#: Where this process found the three packages of a check. Nothing else is searched, least of all the working directory,
#: which may be a stranger's folder.
_FILES = (Path(__file__).parent, Path(str(numpy.__file__)), Path(str(flint.__file__)))
_PATHS = [str(_FILES[0].resolve().parent), *dict.fromkeys(str(file.resolve().parent.parent) for file in _FILES[1:])]


class Checker:
    """One process that checks the contents it is sent, one model after the other."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *_PATHS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for this process, which then closes that one
        )

    def verify(self, packed: Packed, claim: str) -> Verification:
        """Check contents; `ConnectionError` if the process is gone."""
        assert self.process.stdin is not None and self.process.stdout is not None
        send(self.process.stdin, packed, claim)
        line = self.process.stdout.readline()
        if not line:  # the server itself has ended, which no check can do
            raise ConnectionError("the process that checks has ended")
        return from_json(line)

    @property
    def alive(self) -> bool:
        """Whether the process can take another request."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        self.process.wait()


class _Pool:
    """Checkers that wait for work, and as many more as there are cores."""

    def __init__(self) -> None:
        self.idle: LifoQueue[Checker] = LifoQueue()
        self.places = BoundedSemaphore(os.cpu_count() or 1)

    def verify(self, packed: Packed, claim: str) -> Verification:
        """Check contents in one of the processes; one that has died while it waited is replaced."""
        with self.places:
            while True:
                try:
                    checker, fresh = self.idle.get_nowait(), False
                except Empty:
                    checker, fresh = Checker(), True
                try:
                    result = checker.verify(packed, claim)
                except ConnectionError as error:
                    checker.close()
                    if fresh:
                        return Verification(False, reasons=(f"no check could be run: {error}",))
                    continue
                except BaseException:  # interrupted: its answer would be taken for the next one
                    checker.close()
                    raise
                if checker.alive:
                    self.idle.put(checker)
                return result

    def close(self) -> None:
        """End all processes that wait for work."""
        with suppress(Empty):
            while True:
                self.idle.get_nowait().close()


_pool = _Pool()


def _forget() -> None:
    """In a forked process: leave the checkers to the process that started them."""
    global _pool
    _pool = _Pool()


atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


_proven: set[str] = set()


def fingerprint(packed: Packed, certificate: Certificate) -> str:
    """A hash of a model's contents and of the claim about them."""
    parts = (certificate.to_json(), *packed.hashes.values())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def remember(packed: Packed, certificate: Certificate) -> None:
    """Note that this claim was proven from these contents."""
    _proven.add(fingerprint(packed, certificate))


def is_proven(name: str) -> bool:
    """Whether the contents with this fingerprint were proven by this process."""
    return name in _proven


def verify_files(packed: Packed, claim: str) -> Verification:
    """Run the kernel's check over file contents in a process of its own, and remember a proof.

    Examples
    --------
    >>> import transformula as tf
    >>> model = tf.compile("x*y", on="x=0..1, y=0..1")
    >>> verify_files(model.packed, model.certificate.to_json()).verified
    True
    """
    result = _pool.verify(packed, claim)
    if result.verified:
        remember(packed, Certificate.from_json(claim))
    return result


def verify_folder(folder: str | Path) -> Verification:
    """Run the kernel's check over a folder in a process of its own, and remember a proof."""
    return check.verify_folder(folder, verify_files)


def stated(claim: Certificate | Verification) -> dict[str, float | None]:
    """The numbers of a claim by name; those of a mean have separate names, so that none is taken for a bound on the
    error at every point.

    Examples
    --------
    >>> list(stated(Verification(True, 0.1, 0.0, 0.1, 0.2)))
    ['approximation', 'rounding', 'bound', 'eps']
    """
    facts = {named(claim, name): getattr(claim, name) for name in ("approximation", "rounding", "bound", "eps")}
    if claim.relative is not None:
        facts["relative"] = claim.relative
    if claim.mean is None:
        return facts
    beside = {f"{name}_seams" if name == "outside" else name: value for name, value in asdict(claim.mean).items()}
    return facts | beside


def norm_of(claim: Certificate | Verification) -> str:
    """The norm of a claim: the error at every point ("sup"), or its mean over the box ("mean")."""
    return "sup" if claim.mean is None else "mean"


def named(claim: Certificate | Verification, name: str) -> str:
    """The name of a number of a claim."""
    return name if claim.mean is None else f"mean_{name}"


def require_proof(packed: Packed, certificate: Certificate) -> None:
    """Prove a claim unless that was done before; `NotProvenError` gives the reason if it does not hold."""
    if not is_proven(fingerprint(packed, certificate)):
        result = verify_files(packed, certificate.to_json())
        if not result.verified:
            raise NotProvenError(f"the model does not verify: {'; '.join(result.reasons)}")


_PACKAGE = Path(__file__).parent
_CHECK, _RULES = "transformula.kernel.isolation", "kernel.rules.rule_table"


def trusted_modules(construction: str) -> dict[str, int]:
    """The kernel's modules that a check of a construction imports, each with its number of lines.

    Examples
    --------
    >>> found = trusted_modules("polynomial")
    >>> "kernel.rules.polynomial_rule" in found, any("gallery" in name for name in found)
    (True, False)
    """
    others = frozenset(rule.__name__ for rule in RULES.values() if rule is not RULES[construction])
    found: dict[str, int] = {}
    stack = [_CHECK]
    while stack:
        name = stack.pop().removeprefix("transformula.")
        if name not in found:
            text = _path(name).read_text(encoding="utf-8")
            found[name] = text.count("\n")
            left_out = others if name == _RULES else frozenset()
            stack += [each for each in _imports(ast.parse(text), left_out) if each.startswith("transformula.kernel")]
    return dict(sorted(found.items()))


def _path(name: str) -> Path:
    place = _PACKAGE.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _imports(tree: ast.AST, left_out: frozenset[str]) -> Iterator[str]:
    """The modules that code imports when it is run, but for some functions; imports for type checkers are not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and node.name in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (module for module in modules if _path(module.removeprefix("transformula.")).is_file())
            yield node.module
        yield from _imports(node, left_out)
