"""``transformula fit`` from a user's chair."""

import json

import pytest
from typer.testing import CliRunner

import transformula as tf
from transformula.cli.app import app
from transformula.errors import InputError

runner = CliRunner()


def test_fit_prints_the_score_and_saves_a_model(table, tmp_path):
    out = tmp_path / "house"
    done = runner.invoke(app, ["fit", str(table), "--target", "price", "--degree", "2", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["r2_held_out"] > 0.999999 and facts["held_out_rows"] == 24
    assert facts["formula"] == "3 + 2*size*rooms_per_floor + age**2"
    assert tf.verify(out).verified
    shown = runner.invoke(app, ["fit", str(table), "--target", "price", "--degree", "2"])
    assert "3 + 2*size*rooms_per_floor + age**2" in shown.stdout


@pytest.mark.parametrize(
    "line, message",
    [
        ("1,2,3", "line 5: 3 values for 4 columns"),
        ("", "line 5: the line is blank"),
    ],
)
def test_bad_rows_are_named(table, line, message):
    lines = table.read_text().splitlines()
    lines[4] = line
    table.write_text("\n".join(lines))
    done = runner.invoke(app, ["fit", str(table), "--target", "price"])
    assert isinstance(done.exception, InputError) and done.exception.exit_code == 2
    assert message in str(done.exception)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--target", "prices"], "has no column prices"),
        (["--target", "price", "--drop", "garden"], "has no column garden"),
        (["--target", "price", "--degree", "0"], "must be an int in the range [1, 20]. Got 0 instead"),
        (["--target", "price", "--solver", "magic"], "'solver' parameter"),
        (["--target", "price", "--test", "1.5"], "--test must be"),
        (
            ["--target", "price", "--epochs", "3"],
            "--epochs and --checkpoint are for --solver sgd or adam, not for auto",
        ),
    ],
)
def test_bad_options_are_named(table, arguments, message):
    done = runner.invoke(app, ["fit", str(table), *arguments])
    assert isinstance(done.exception, InputError) and message in str(done.exception)


@pytest.mark.parametrize("content", ["", "a,b\n", "a,a\n1,2\n", "price\n1\n2\n3\n"])
def test_tables_without_data(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    done = runner.invoke(app, ["fit", str(path), "--target", "price" if "price" in content else "a"])
    assert isinstance(done.exception, InputError)


def test_a_column_can_be_left_out(table):
    done = runner.invoke(app, ["fit", str(table), "--target", "price", "--drop", "age", "--json"])
    assert done.exit_code == 0 and "age" not in json.loads(done.stdout)["formula"]
