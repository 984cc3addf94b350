"""What the slim core can do without its extras, and how it names what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import transformula as tf
from transformula.optional import EXTRAS, MissingPackageError, require

SOURCE = Path(tf.__file__).parents[1]
HIDDEN = (*EXTRAS, "scipy", "sympy", "dask", "pandas")
#: Runs the command line where only the core's packages can be imported.
CORE = f"""
import sys
for name in {HIDDEN!r}:
    sys.modules[name] = None
from transformula.cli import main
sys.argv[0] = "transformula"
main()
"""


def core(*arguments, cwd):
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", CORE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a compiled model, a table to fit, and nothing but the core to work with."""
    where = tmp_path_factory.mktemp("core")
    done = core("compile", "sin(x)*y", "--on", "x=0..1, y=0..1", "--eps", "1e-4", "--out", "model", cwd=where)
    assert done.returncode == 0, done.stderr
    (where / "table.csv").write_text("x,y\n1,2\n2,3\n3,5\n4,7\n")
    return where


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "model"),
        ("eval", "model", "--at", "x=1/2,y=1"),
        ("show", "model"),
        ("compile", "--latex", r"\frac{\sin x}{2}", "--on", "x=0..1", "--eps", "1e-3"),
    ],
    ids=lambda a: a[0],
)
def test_the_core_is_enough_for(folder, arguments):
    done = core(*arguments, "--json", cwd=folder)
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("export", "model", "--to", "torch"), "torch"),
        (("export", "model", "--to", "onnx"), "onnx"),
        (("report", "model"), "plot"),
        (("explore", "--no-browser"), "explorer"),
        (("fit", "table.csv", "--target", "y"), "learn"),
        (("reproduce", "rates", "--quick"), "plot"),
        (("reproduce", "fang-f1", "--quick"), "learn,plot,torch"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_verb_names_the_extra_it_needs(folder, arguments, extra):
    before = sorted(folder.rglob("*"))
    done = core(*arguments, cwd=folder)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert f"not installed: pip install 'transformula[{extra}]'" in " ".join(done.stderr.split())
    assert sorted(folder.rglob("*")) == before


def test_functions_and_classes_name_the_extra_they_need(monkeypatch):
    model = tf.compile("x**2", on="x=0..1")
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("PolynomialTransformerRegressor", "OneLayerTransformerRegressor"):
        monkeypatch.delitem(vars(tf), name, raising=False)  # looked up by an earlier test
    with pytest.raises(MissingPackageError, match=r"^to_torch needs torch.*'transformula\[torch\]'$"):
        model.to_torch()
    with pytest.raises(MissingPackageError, match=r"^PolynomialTransformerRegressor needs scikit-learn.*\[learn\]'$"):
        tf.PolynomialTransformerRegressor  # noqa: B018
    with pytest.raises(ImportError, match=r"needs scikit-learn and torch, which are .*\[learn,torch\]'$"):
        from transformula import OneLayerTransformerRegressor  # noqa: F401
    assert "proven" in model._repr_html_()  # the card does without its plot


def test_training_alone_needs_torch(monkeypatch):
    regressor, x = tf.PolynomialTransformerRegressor, [[0.0], [1.0], [2.0], [3.0]]
    monkeypatch.setitem(sys.modules, "torch", None)
    assert regressor(2).fit(x, [0, 1, 4, 9]).predict([[1.5]])[0] == pytest.approx(2.25)
    with pytest.raises(MissingPackageError, match=r"^solver='sgd' needs torch"):
        regressor(2, "sgd").fit(x, [0, 1, 4, 9])


def test_what_is_installed_is_not_named():
    require("anything")
    require("numbers", "torch", "sklearn")
