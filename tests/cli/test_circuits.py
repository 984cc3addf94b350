"""Circuits from the command line: --rel, show and its drawing."""

import json
import xml.etree.ElementTree as ET

import pytest

import transformula as tf

SVG = "{http://www.w3.org/2000/svg}"
FORMULA, BOX = "max(x*y, sin(x)) - abs(y - x/3)", "x=-1..1, y=0..2"


@pytest.fixture
def kinks(circuits, tmp_path):
    return str(circuits("kinks").save(tmp_path / "kinks"))


def test_show_says_which_sub_expression_each_table_is(cli, kinks):
    shown = cli("show", kinks)
    assert shown.code == 0
    for words in (
        "block 0, attention",
        "block 0, feed-forward",
        "sin(u)",
        "u**2",
        "tokens, table",
        "ReLU(u)",
        "readout",
    ):
        assert words in shown.out, words
    facts = json.loads(cli("show", kinks, "--json").out)
    tables = [line for line in facts["wires"] if "tokens" in line]
    assert len(tables) == 3 and any("sin(x)" in line for line in tables)
    assert facts["construction"] == "circuit"


def test_ranges_and_tokens_are_those_of_the_weights(cli, circuits, tmp_path):
    model = circuits("power")
    lines = json.loads(cli("show", str(model.save(tmp_path / "m")), "--json").out)["wires"]
    (log,) = [line for line in lines if "= log(u)" in line]
    assert "u = x in 1..2" in log
    tokens = {line.split("table ")[1].split(")")[0]: int(line.split(" tokens")[0].split("(")[-1])
              for line in lines if " tokens, table " in line}  # fmt: skip
    assert sum(tokens.values()) == model.memory_tokens


def test_the_drawing_is_a_picture_of_the_circuit(cli, kinks, tmp_path):
    file = tmp_path / "circuit.svg"
    assert cli("show", kinks, "--svg", str(file)).code == 0
    root = ET.parse(file).getroot()
    assert root.tag == SVG + "svg"
    model = tf.load(kinks)
    kinds = [g.get("class") for g in root.iter(SVG + "g")]
    heads = sum(len(b.attention.heads) for b in model.weights.blocks)
    units = sum(b.feed_forward.hidden.shape[0] for b in model.weights.blocks if b.feed_forward)
    assert (kinds.count("input"), kinds.count("table"), kinds.count("ReLU"), kinds.count("output")) == (
        2, heads, units, 1,
    )  # fmt: skip
    width, height = float(root.get("width")), float(root.get("height"))
    places = set()
    for box in (r for g in root.iter(SVG + "g") for r in g.iter(SVG + "rect")):
        x, y = float(box.get("x")), float(box.get("y"))
        assert x >= 0 and y >= 0
        assert x + float(box.get("width")) <= width and y + float(box.get("height")) <= height
        places.add((x, y))
    assert len(places) == len(kinds)
    assert len(list(root.iter(SVG + "path"))) >= heads + units
    assert any("sin(u)" in (t.text or "") for t in root.iter(SVG + "text"))


def test_several_outputs_are_drawn(cli, circuits, tmp_path):
    folder, file = circuits("two outputs").save(tmp_path / "m"), tmp_path / "c.svg"
    assert cli("show", str(folder), "--svg", str(file)).code == 0
    assert sum(g.get("class") == "output" for g in ET.parse(file).iter(SVG + "g")) == 2


def test_only_circuits_are_drawn(cli, tmp_path):
    folder = str(tmp_path / "p")
    assert cli("compile", "x**2", "--on", "x=0..1", "--out", folder).code == 0
    refused = cli("show", folder, "--svg", str(tmp_path / "c.svg"))
    assert refused.code == 2 and "only circuits can be drawn" in refused.err
    assert not (tmp_path / "c.svg").exists()


def test_a_drawing_that_cannot_be_written(cli, kinks, tmp_path):
    refused = cli("show", kinks, "--svg", str(tmp_path / "nowhere" / "c.svg"))
    assert refused.code == 2 and "cannot write" in refused.err


def test_show_lists_the_tables_of_one_layer(cli, tmp_path):
    folder = str(tmp_path / "m")
    text = ["compile", "sin(x) + exp(y - x)", "--on", "x=0..1, y=0..1", "--out", folder]
    for construction, eps in (("lookup", "1e-3"), ("partition", "0.05")):
        assert cli(*text, "--construction", construction, "--eps", eps).code == 0
        lines = json.loads(cli("show", folder, "--json").out)["tables"]
        assert len(lines) == 2 and "sin(x)" in lines[0] and "exp(y - x)" in lines[1]


def test_rel_is_relative_to_the_largest_value(cli):
    result = cli("compile", "50*sin(x)", "--on", "x=0..pi", "--rel", "1e-4", "--json")
    facts = json.loads(result.out)
    assert 0.99 * 5e-3 < facts["eps"] <= 5e-3 and facts["bound"] <= facts["eps"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rel", "1e-3", "--eps", "1e-3"], "one of eps, rel and pointwise"),
        (["--rel", "0"], "above 0"),
        (["--rel", "nan"], "above 0"),
    ],
)
def test_rel_errors(cli, options, words):
    refused = cli("compile", "sin(x)", "--on", "x=0..1", *options)
    assert refused.code == 2 and words in refused.err


def test_a_sequence_is_shown_at_one_position(cli, tmp_path):
    folder = str(tmp_path / "sequence")
    made = cli("compile", "x*y", "sin(x)/(1 + y**2)", "--on", "x=0..1, y=0..1", "--eps", "1e-3",
               "--shape", "3x2", "--construction", "circuit", "--out", folder)  # fmt: skip
    assert made.code == 0
    lines = json.loads(cli("show", folder, "--json").out)["wires"]
    assert sum("output" in line for line in lines) == 2 and any("sin(x_1)" in line for line in lines)
    assert cli("show", folder, "--svg", str(tmp_path / "s.svg")).code == 0
    assert cli("verify", folder).code == 0 and cli("report", folder).code == 0
    values = json.loads(cli("eval", folder, "--at", "x_1=1,y_1=1,x_2=0,y_2=1,x_3=1,y_3=0", "--json").out)["values"]
    assert abs(values[0] - 1) < 1e-3 and abs(values[2]) < 1e-3


def test_a_length_is_one_line(cli, circuits, tmp_path):
    model = circuits("distance", "float32")
    lines = json.loads(cli("show", str(model.save(tmp_path / "m")), "--json").out)["wires"]
    assert len(lines) == 4 and "length by 7 folds of (x - y, z)" in lines[1]
    units = [len(block.feed_forward.hidden_bias.dense()) for block in model.weights.blocks if block.feed_forward]
    assert units == [4] + [1] * 5  # the quadrant, and one fold after the other
