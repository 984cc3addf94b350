"""The explorer's point view in a notebook, without a browser: what a slider sets, and what the bars then say."""

import sys

import pytest

import transformula as tf
from transformula.errors import InputError
from transformula.optional import MissingPackageError

pytest.importorskip("anywidget")

MODELS = {
    "tables": ("sin(x)*y", "x=0..1, y=0..1", {"eps": 0.05, "construction": "partition"}, {"x": 0.1, "y": 0.9}),
    "circuit": ("sin(x)*y/z", "x=0..1, y=0..1, z=1..2", {"eps": 1e-3, "construction": "circuit"}, {"x": 0.3}),
    "ridge": ("x**2*y + 1", "x=-1..1, y=-1..1", {}, {"x": 0.75, "y": -0.5}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_slider_changes_the_bars_which_add_up_to_the_answer(kind):
    formula, box, options, moved = MODELS[kind]
    model = tf.compile(formula, on=box, **options)
    widget = model.widget()
    assert model.family.name == kind and [name for name, *_ in widget.ends] == list(model.box.variables)
    before = widget.bars
    # the message that a browser sends
    widget.set_state({"point": {**widget.point, **moved}})
    assert widget.bars != before and moved.items() <= widget.point.items()
    expected = float(model([list(widget.point.values())])[0])
    assert widget.answer == expected
    assert sum(bar["value"] for bar in widget.bars) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert abs(widget.answer - widget.target) <= model.certificate.bound
    assert "proven" in widget.claim


def test_all_that_the_page_reads_is_sent():
    widget = tf.compile(["x", "x**2"], on="x=0..1").widget(output=1)
    sent = widget.get_state()
    assert {"title", "claim", "ends", "point", "bars", "answer", "target"} <= sent.keys()
    assert sent["point"] == {"x": 0.5} and sent["answer"] == 0.25 and sent["ends"] == [["x", 0.0, 1.0]]
    assert "render" in sent["_esm"] and "--ink" in sent["_css"]


def test_mistakes_are_named(monkeypatch):
    model = tf.compile("x**2", on="x=0..1")
    widget = model.widget()
    for point, why in (({"x": 2.0}, "x = 2 is outside the box, 0 to 1"), ({"t": 0.0}, "no variable t")):
        with pytest.raises(InputError, match=why):
            widget.point = point
    assert widget.point == {"x": 0.5} and widget.answer == 0.25
    with pytest.raises(InputError, match="outputs 0 to 0, not 1"):
        model.widget(output=1)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingPackageError, match=r"^widget needs anywidget.*\[notebook\]'$"):
        model.widget()
