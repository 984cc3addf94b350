"""The kernel stands alone: what it may import and contain, how long it is, and that it judges without the rest.

Folders of all benchmark cases are checked in a process to which nothing of transformula but the kernel exists,
and into which torch, scipy and the like cannot be imported.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import transformula as tf
from support.attention_models import attention_model
from support.circuit_models import CASES
from support.folders import open_folder
from transformula import kernel

ROOT = Path(kernel.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MAX_FILE_LINES = 400
#: Lines of all files together. What is trusted should not grow: lower this when it shrinks.
LINES = 12_515


def _imports(tree):
    """Every module that an import statement names, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_only_the_standard_library_numpy_and_flint(path):
    for name in _imports(ast.parse(path.read_text())):
        root = name.partition(".")[0]
        ours = name.startswith("transformula.kernel.")
        assert ours or root in ("numpy", "flint", "__future__") or root in sys.stdlib_module_names, name
        assert root not in ("importlib", "runpy", "ctypes", "pickle", "marshal"), name


#: What a verdict must not depend on, and ways to reach it.
FORBIDDEN = r"""\b(
    time\.(monotonic|time|perf_counter|process_time) | heapq | random | secrets | uuid | threading | asyncio
    | concurrent | multiprocessing | subprocess | os\.(environ|getenv|cpu_count) | datetime | tempfile | socket
    | __import__ | eval | exec | globals | setattr
)\b"""


#: The files that isolate a check; they decide nothing.
ISOLATING = ("arithmetic", "isolation")


@pytest.mark.parametrize("path", [p for p in FILES if p.stem not in ISOLATING], ids=lambda p: p.stem)
def test_no_clock_no_chance_no_search(path):
    code = "\n".join(ast.unparse(node) for node in ast.parse(path.read_text()).body if not isinstance(node, ast.Expr))
    without_texts = re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", code)
    found = re.search(FORBIDDEN, without_texts, re.VERBOSE)
    assert not found, found
    assert not re.search(r"^\s*(import|from) (time|heapq|random)\b", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


def test_the_kernel_does_not_grow():
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= LINES


# -- judging alone ------------------------------------------------------------------------------------------

_MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ImportError(name + " is not installed here")

sys.meta_path.insert(0, Missing())
"""
_ABSENT = (
    "torch",
    "scipy",
    "safetensors",
    "sklearn",
    "sympy",
    "matplotlib",
    "threadpoolctl",
    "joblib",
    "mpmath",
    "typer",
    "rich",
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A folder for PYTHONPATH in which transformula is its kernel, and nothing else."""
    place = tmp_path_factory.mktemp("alone")
    (place / "transformula").mkdir()
    shutil.copy(ROOT.parent / "__init__.py", place / "transformula")
    shutil.copytree(ROOT, place / "transformula" / "kernel", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "sitecustomize.py").write_text(_MISSING.format(absent=set(_ABSENT)))
    return place


def _python(alone, *arguments, threads=1):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("OPENBLAS_")}
    environment = {**kept, "PYTHONPATH": str(alone)} | dict.fromkeys(names, str(threads))
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=alone)


def _check(alone, folder, threads=1):
    done = _python(alone, "-m", "transformula.kernel", str(folder), "--json", threads=threads)
    assert not done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_rest_is_not_there(alone):
    for name in (*_ABSENT, "transformula.compiler.evidence", "transformula.compiler", "transformula.model"):
        done = _python(alone, "-c", f"import {name}")
        assert done.returncode == 1 and "Error" in done.stderr, name
    done = _python(alone, "-c", "import transformula.kernel; print(transformula.kernel.__file__)")
    assert Path(done.stdout.strip()).parent == alone / "transformula" / "kernel", done


_ALL = """
import json, pathlib, sys
from transformula.kernel.check import verify_folder

said = {}
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir())[:: int(sys.argv[2])]:
    found = verify_folder(folder)
    said[folder.name] = [found.verified, found.approximation, found.rounding, found.bound, list(found.reasons)]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Folders of all benchmark cases in both formats, as ``benchmarks/cases.py`` wrote them."""
    place = tmp_path_factory.mktemp("cases")
    with zipfile.ZipFile(Path(__file__).parent / "cases.zip") as archive:
        archive.extractall(place)
    return place


def test_every_case_is_judged_alone_and_alike(alone, stored):
    """The same answer to the last bit here and there, and every fifth with two threads, as when they were made."""
    answers = [_python(alone, "-c", _ALL, str(stored), step, threads=threads) for step, threads in (("1", 1), ("5", 2))]
    assert [done.stderr for done in answers] == ["", ""]
    said, by_two_threads = (json.loads(done.stdout) for done in answers)
    assert len(by_two_threads) == len(said) // 5 and by_two_threads.items() <= said.items()
    assert set(said) == {f"{name}-{dtype}" for name in CASES for dtype in ("float64", "float32")}
    for name, (verified, *proven, reasons) in said.items():
        assert verified and not reasons, name
        claim = json.loads((stored / name / "certificate.json").read_text())
        assert proven[2] <= claim["eps"] and proven[0] <= claim["approximation"] and proven[1] <= claim["rounding"], (
            name
        )
        body = json.loads((stored / name / "model.json").read_text())
        assert body["formulas"] == [CASES[name.rpartition("-")[0]]["formula"]], name
    for name in sorted(said)[::7]:
        here = tf.verify(stored / name)
        assert [here.approximation, here.rounding, here.bound] == said[name][1:4], name


OTHERS = {
    "corollary": lambda: tf.compile("exp(x)", on="x=-1..1", eps=1e-3, construction="polynomial"),
    "partition": lambda: tf.compile("x*sin(y)", on="x=0..1, y=0..2", eps=0.2, construction="partition"),
    "memorize": lambda: tf.memorize([[0.0, 1.0], [1.0, 0.0]], [1.0, 2.0]),
    "linear-attention": lambda: attention_model("one head"),
    "yun": lambda: tf.compile("x*y", on="x=0..1, y=0..1", eps=0.2, construction="yun"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_constructions_are_judged_alone_too(name, alone, tmp_path):
    model = OTHERS[name]()
    assert model.construction == name
    folder = model.save(tmp_path / "model")
    assert _check(alone, folder)[0] == 0
    opened = open_folder(folder)
    opened.claim["rounding"] = 0.0
    status, said = _check(alone, opened.forge(folder))
    assert status == 1 and "rounding" in said["reasons"][0]
