"""Compiled lemmas are kept in one place for a whole test run, and the library is compiled there once."""

import fcntl
import os
import shutil

import pytest

from transformula.coq.coq_compiler import Workshop
from transformula.coq.coq_files import LIBRARY, library_file


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """A cache folder for all workers."""
    root = tmp_path_factory.getbasetemp()
    return (root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root) / "coq"


@pytest.fixture(scope="module", autouse=True)
def use_of_shared_cache(shared_cache):
    """Never the user's own: a test must not depend on what an earlier run has left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared_cache))
        yield


@pytest.fixture(scope="session")
def coq(shared_cache, tmp_path_factory):
    """The library, compiled by the first worker that needs it while the others wait; without coqc a test is skipped."""
    if shutil.which("coqc") is None:
        pytest.skip("coqc is not installed")
    shared_cache.mkdir(exist_ok=True)
    with (shared_cache / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared_cache))
        fcntl.flock(lock, fcntl.LOCK_EX)
        workshop = Workshop({name: library_file(name) for name in LIBRARY}, frozenset(LIBRARY))
        compiled = workshop.compile(tmp_path_factory.mktemp("library"), LIBRARY)
    assert len(compiled) == len(LIBRARY) and all(file.printed is not None for file in compiled)
