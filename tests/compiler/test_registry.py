"""One registry of constructions: whoever lists them lists the same ones."""

import re
import subprocess
import sys
from importlib.resources import files
from typing import get_args

import pytest

import transformula as tf
from transformula.compiler.constructions import CONSTRUCTIONS, OFFERED, TABLE_FAMILY, Choice, chosen
from transformula.errors import InputError
from transformula.kernel.folder.description import STATES
from transformula.kernel.rules.rule_table import RULES


def test_the_checker_has_a_rule_for_every_construction_and_no_other():
    assert set(CONSTRUCTIONS) == set(STATES) == set(RULES)
    tables = {name for name, made in CONSTRUCTIONS.items() if made.family.name in ("tables", "circuit", "layers")}
    assert tables == {"memorize", *(name for name, (must, _) in STATES.items() if "circuit" in must)}
    assert all(name == made.name and made.title and made.proof.endswith(".") for name, made in CONSTRUCTIONS.items())


def test_what_is_offered_can_be_built():
    assert {name for name, made in CONSTRUCTIONS.items() if made.attempts} == set(OFFERED) and get_args(Choice) == (
        "auto",
        *OFFERED,
    )
    script = files("transformula.explorer").joinpath("static/state.js").read_text()
    listed = re.search(r"CONSTRUCTIONS = \[(.*?)\]", script, re.DOTALL)[1]
    assert re.findall(r'"(.*?)"', listed) == list(get_args(Choice))
    page = files("transformula.explorer").joinpath("static/index.html").read_text()
    choices = re.search(r'<select id="construction".*?</select>', page, re.DOTALL)[0]
    assert re.findall(r'<option value="(.*?)"', choices) == list(get_args(Choice))


def test_names_are_looked_up():
    assert chosen("auto") is None and chosen("partition").sharp and chosen("lookup").family is TABLE_FAMILY
    for name in ("magic", "memorize", ""):
        with pytest.raises(InputError, match="unknown construction"):
            chosen(name)


def test_a_model_knows_what_made_it():
    model = tf.compile("exp(x)", on="x=0..1", eps=1e-4, construction="polynomial")
    assert model.construction == "corollary" and model.made_by is CONSTRUCTIONS["corollary"]
    assert model.family.data == "direction" and model.degree == model.reading.degree


def test_asking_costs_no_heavy_import():
    code = (
        "import sys, transformula.compiler.constructions\n"
        "sys.exit(any(m in sys.modules for m in ('numpy', 'flint', 'scipy', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
