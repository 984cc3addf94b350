"""The package as a newcomer gets it: built, installed into an empty environment, and followed from the README on.

For `make dist` only, as it takes minutes (TRANSFORMULA_DIST names the folder of what it built): the wheel with the core
alone, the sdist, and the wheel with all extras, where README and tutorials are followed.
"""

import importlib.util
import os
import subprocess
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = os.environ.get("TRANSFORMULA_DIST")
FOLLOW = ROOT / "tests" / "support" / "follow.py"
CORE_MB = 250

full = pytest.mark.skipif(not BUILT, reason="make dist builds and installs the package, which takes minutes")


def _tool():
    spec = importlib.util.spec_from_file_location("install_size", ROOT / "benchmarks" / "install_size.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


def _or_skip(make, *arguments):
    """Building and installing need a package registry: where none answers, say so."""
    try:
        return make(*arguments)
    except subprocess.CalledProcessError as error:
        unreachable = ("Could not find a version", "No matching distribution", "Failed to establish", "Max retries")
        if any(text in error.stdout + error.stderr for text in unreachable):
            pytest.skip("no package registry can be reached")
        raise AssertionError(error.stdout + error.stderr) from None


@pytest.fixture
def wheel(tmp_path):
    pytest.importorskip("build")
    if BUILT:
        return next((ROOT / BUILT).glob("*.whl"))
    return _or_skip(tool.build, tmp_path / "wheel", "wheel")[0]


def run(python, *arguments, cwd):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([python, *arguments], capture_output=True, text=True, cwd=cwd, env=clean)


@full
def test_the_wheel_in_an_empty_environment(wheel, tmp_path):
    """One test, so that one worker builds and installs once."""
    _describes_itself(wheel)
    core = _or_skip(tool.environment, tmp_path / "core", wheel)
    _is_slim(core)
    _compiles_proves_and_evaluates(core, tmp_path)


def _is_slim(core):
    sizes = tool.sizes(core)
    assert {"numpy", "python-flint", "transformula", "typer"} <= set(sizes)
    assert not {"torch", "scipy", "scikit-learn", "matplotlib", "sympy", "onnx"} & set(sizes)
    assert sum(sizes.values()) < CORE_MB, sizes


def _compiles_proves_and_evaluates(core, tmp_path):
    command = core.with_name("transformula")
    for arguments, shown in (
        (["--version"], ""),
        (["compile", "sin(x)*y", "--on", "x=0..1, y=0..1", "--eps", "1e-3", "--out", "model"], "compiled"),
        (["verify", "model"], "verified"),
        (["eval", "model", "--at", "x=0, y=1"], "0"),
        (["show", "model"], "Transformer"),
    ):
        done = run(command, *arguments, cwd=tmp_path)
        assert done.returncode == 0 and shown in done.stdout, done.stdout + done.stderr
    done = run(core, "-m", "transformula", "export", "model", "--to", "torch", cwd=tmp_path)
    assert done.returncode == 2 and "pip install 'transformula[torch]'" in done.stderr


def _describes_itself(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry = next(name for name in names if name.endswith("METADATA"))
        facts = message_from_string(archive.read(entry).decode())
    assert {"transformula/py.typed", "transformula/viewing/static/report.css"} <= set(names)
    assert "transformula/viewing/explorer/static/index.html" in names
    assert facts["Summary"] and facts["License-Expression"] == "Apache-2.0" and facts["Requires-Python"] == ">=3.10"
    assert facts["Description-Content-Type"] == "text/markdown" and "## Install" in facts.get_payload()
    assert {"all", "explorer", "learn", "onnx", "plot", "torch"} <= set(facts.get_all("Provides-Extra"))
    assert facts.get_all("Classifier") and facts["Keywords"] and facts["Author"]


@full
def test_the_source_distribution_installs(tmp_path):
    sdist = next((ROOT / BUILT).glob("*.tar.gz"))
    python = _or_skip(tool.environment, tmp_path / "env", sdist)
    assert run(python, "-m", "transformula", "--version", cwd=tmp_path).returncode == 0


@full
def test_a_newcomer_follows_readme_and_tutorials(wheel, tmp_path):
    python = _or_skip(tool.environment, tmp_path / "env", wheel, "all", ROOT / "constraints.txt")
    pages = [ROOT / "README.md", ROOT / "docs" / "first_steps.md", *sorted((ROOT / "docs" / "tutorials").glob("*.py"))]
    done = run(python, str(FOLLOW), *map(str, pages), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("blocks run") == len(pages)
