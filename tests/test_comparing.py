"""compare: every construction for one formula, beside each other."""

import pytest

import transformula as tf
from transformula.compiler import comparison
from transformula.errors import InputError
from transformula.show.figure_style import picture
from transformula.show.figures import comparison_figure


@pytest.fixture(scope="module")
def found():
    return tf.compare("sin(x)*y", on="x=0..2, y=0..1", eps=0.05)


def test_each_entry_is_the_model_that_compile_makes(found):
    assert [e.name for e in found.entries] == [
        "corollary", "corollary, several heads", "lookup", "partition", "circuit", "attention-only", "local-polynomials",
        "yun",
    ]  # fmt: skip
    assert ["Corollary 3.7" in e.title for e in found.entries] == [True, True, *[False] * (len(found.entries) - 2)]
    lookup = tf.compile("sin(x)*y", on="x=0..2, y=0..1", eps=0.05, construction="lookup")
    entry = found.entries[2]
    assert entry.bound == lookup.certificate.bound and entry.parameters == lookup.parameter_count
    assert entry.memory_tokens == lookup.memory_tokens and entry.layers == entry.heads == 1
    assert all(e.proven and e.bound <= 0.05 for e in found.entries)
    assert {e.name for e in found.entries if e.norm == "mean"} == {"yun"}


def test_the_smallest_is_one_with_a_bound_at_every_point(found):
    assert found.smallest.parameters == min(e.parameters for e in found.entries if e.norm == "sup")
    only = comparison.Comparison("f", "x=0..1", "float64", found.entries[-1:])
    assert only.entries[0].proven and only.smallest is None and only.to_dict()["constructions"][0]["norm"] == "mean"
    assert "(mean)" in picture(comparison_figure(only), "svg").decode()


def test_a_refusal_is_an_entry_and_not_the_end():
    found = tf.compare("exp(x)", on="x=0..1", eps=1e-7)
    refused = {e.name: e.refusal for e in found.entries if not e.proven}
    assert refused.get("partition")
    assert found.smallest is not None and found.smallest.name not in refused
    svg = picture(comparison_figure(found), "svg")
    assert svg.startswith(b"<?xml")


def test_a_mistake_is_told_once():
    with pytest.raises(InputError, match="sin"):
        tf.compare("sin(", on="x=0..1")
