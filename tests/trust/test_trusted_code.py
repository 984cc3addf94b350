"""The trusted code behind one certificate: the modules that its check imports, and no others."""

import json
import subprocess
import sys

import pytest

import transformula as tf
import trust
from transformula.kernel.rules.rule_table import RULES
from transformula.proven import trusted_modules

CHECK = """
import sys
from transformula.kernel.check import verify_folder
assert verify_folder(sys.argv[1]).verified
print(*sorted(name.removeprefix("transformula.") for name in sys.modules if name.startswith("transformula.kernel.")))
"""
MODELS = {
    "polynomial": ("x*y", "x=0..1, y=0..1", {}),
    "lookup": ("sin(x)", "x=0..1", {"eps": 1e-3}),
    "yun": ("x*y", "x=0..1, y=0..1", {"eps": 0.05, "construction": "yun"}),
}


@pytest.mark.parametrize("construction", MODELS)
def test_a_check_imports_what_is_counted(construction, tmp_path):
    formula, box, options = MODELS[construction]
    model = tf.compile(formula, box, **options)
    assert model.construction == construction
    command = [sys.executable, "-c", CHECK, str(model.save(tmp_path / "m"))]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    packages = {name for name in loaded if name.count(".") == 1 and not name.startswith("kernel.__")}
    counted = set(trusted_modules(construction))
    seldom = {"kernel.isolation", "kernel.derivations.floors"}  # these formulas have no floors
    assert loaded - packages <= counted | seldom and counted - seldom <= loaded


def test_a_polynomial_rests_on_no_other_construction():
    counted = trusted_modules("polynomial")
    assert not any("gallery" in name or "softmax" in name or "circuit." in name for name in counted)
    assert sum(counted.values()) < sum(trusted_modules("circuit").values())
    assert all("gallery" in "".join(trusted_modules(name)) for name in RULES if name in ("memorize", "yun", "compact"))


def test_the_page_has_todays_lines():
    """Written by ``python benchmarks/trust.py``."""
    page = trust.PAGE.read_text()
    assert trust.construction_table() in page and trust.kernel_table() in page


def test_verify_lists_the_modules_on_request(tmp_path):
    folder = str(tf.compile("x*y", "x=0..1, y=0..1").save(tmp_path / "m"))
    said = {}
    for options in ([], ["--verbose"], ["--verbose", "--json"]):
        command = [sys.executable, "-m", "transformula", "verify", folder, *options]
        said[" ".join(options)] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = sum(trusted_modules("polynomial").values())
    assert "trusted" not in said[""]
    assert f"trusted lines  {lines}" in said["--verbose"] and "kernel.rules.polynomial_rule" in said["--verbose"]
    found = json.loads(said["--verbose --json"])
    assert found["trusted_lines"] == lines and found["trusted_modules"] == trusted_modules("polynomial")
