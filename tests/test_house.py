"""The shape of the source: sizes, unique names and the length of the way through one compile."""

import ast
import collections
import json
import subprocess
import sys
from pathlib import Path

import transformula

ROOT = Path(transformula.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
#: Sizes of the whole without the Coq export. The aim is 42,000 lines in 280 files, 80 modules for one compile, and 120
#: constants; Hugging Face folders, text models, interventions, raw tables and the engineers' notation take 5,700 lines.
MAX_LINES, MAX_FILES = 58_860, 280
MAX_MODULES = 80
MAX_CONSTANTS = 138
#: Lines of a file, and of a function without its docstring.
MAX_FILE, MAX_FUNCTION = 400, 60
#: Numeric constants of the compiler outside its policy.
MAX_ELSEWHERE = 41
#: Words that say nothing about what a function or module is.
RIDDLES = ("What", "Where", "Those", "As", "They")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _nodes(*kinds):
    return [(path, node) for path, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, kinds)]


def test_the_package_is_small():
    counted = [path for path in FILES if not path.is_relative_to(ROOT / "coq")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in counted) <= MAX_LINES
    assert len(counted) <= MAX_FILES


def test_files_are_short():
    lengths = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE} == {}


def test_functions_are_short():
    """Lines of a function without its docstring; ruff counts the branches (C901)."""
    long = {}
    for path, node in _nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        first = node.body[0]
        said = (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        )
        lines = node.end_lineno - node.lineno + 1 - (first.end_lineno - first.lineno + 1 if said else 0)
        if lines > MAX_FUNCTION:
            long[f"{_name(path)}:{node.name}"] = lines
    assert long == {}


def _repeated(names):
    places = collections.defaultdict(list)
    for name, path in names:
        places[name].append(_name(path))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_modules_have_the_same_name():
    assert _repeated((path.stem, path) for path in FILES if not path.stem.startswith("__")) == {}


def test_no_two_classes_have_the_same_name():
    assert _repeated((node.name, path) for path, node in _nodes(ast.ClassDef)) == {}


def test_docstrings_name_their_subject():
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    riddles = [
        f"{_name(path)}:{getattr(node, 'name', '')}"
        for path, node in _nodes(*kinds)
        if (ast.get_docstring(node) or "").split(" ")[0].rstrip(",.:") in RIDDLES
    ]
    assert riddles == []


def test_every_constant_of_the_policy_is_documented():
    """Numeric constants of the search stand in one file, each with a comment above it or beside it."""
    path = ROOT / "compiler" / "policy.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    constants = [n for n in TREES[path].body if isinstance(n, (ast.Assign, ast.AnnAssign))]
    assert 0 < len(constants) <= MAX_CONSTANTS
    bare = [ast.unparse(n)[:40] for n in constants if "#" not in lines[n.lineno - 2] and "#" not in lines[n.lineno - 1]]
    assert bare == []


def _is_number(node) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(_is_number, node.elts))


def test_the_compiler_has_few_numeric_constants_elsewhere():
    found = [
        f"{_name(path)}: {ast.unparse(node)[:60]}"
        for path, tree in TREES.items()
        if path.is_relative_to(ROOT / "compiler") and path.stem != "policy"
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_number(node.value)
    ]
    assert len(found) <= MAX_ELSEWHERE, found


_TRACE = """
import json, sys
import transformula as tf
seen = set()
def trace(frame, event, arg):
    name = frame.f_globals.get("__name__", "")
    if name.startswith("transformula"):
        seen.add(name)
tf.compile("x", on="x=0..1")
sys.setprofile(trace)
tf.compile("G*m1*m2/r**2", on="G=1..2, m1=1..2, m2=1..2, r=1..2", eps=1e-6)
sys.setprofile(None)
print(json.dumps(sorted(seen)))
"""


def test_one_compile_passes_few_modules():
    done = subprocess.run([sys.executable, "-c", _TRACE], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) <= MAX_MODULES
