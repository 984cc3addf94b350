"""CSV in, CSV out: streaming, exact, and refusals that name the line."""

import csv
import json
from fractions import Fraction

import numpy as np
import pytest

import transformula as tf


@pytest.fixture
def folder(tmp_path):
    return str(tf.compile("x**2 - y/3", on="x=-1..1, y=0..2*pi").save(tmp_path / "m"))


@pytest.fixture
def evaluate(cli, folder, tmp_path):
    def run(text, *options, encoding="utf-8"):
        source, target = tmp_path / "in.csv", tmp_path / "out.csv"
        source.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
        result = cli("eval", folder, "--csv", str(source), "--out", str(target), *options)
        if result.code:
            assert not target.exists(), "something was written"
            assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "m"]
        rows = list(csv.reader(target.open())) if target.exists() else []
        return result, rows

    return run


def test_columns_are_kept_and_the_result_is_appended(evaluate):
    result, rows = evaluate('id,y,note,x\n1,3,"a, b",0.5\n2,0,,1\n')
    assert result.code == 0
    assert rows[0] == ["id", "y", "note", "x", "f"]
    assert rows[1][:4] == ["1", "3", "a, b", "0.5"]
    assert [float(r[4]) for r in rows[1:]] == pytest.approx([-0.75, 1.0])


def test_exact_reads_and_writes_rationals(evaluate):
    result, rows = evaluate("x,y\n1/3,1/7\n0.1,2\n", "--exact")
    assert result.code == 0
    assert [Fraction(r[2]) for r in rows[1:]] == [
        Fraction(1, 9) - Fraction(1, 21),
        Fraction(1, 100) - Fraction(2, 3),
    ]


def test_json_says_how_many_rows(evaluate):
    result, _ = evaluate("x,y\n1,1\n0,0\n", "--json")
    facts = json.loads(result.out)
    assert facts["rows"] == 2 and facts["bound"] > 0


def test_fifty_thousand_rows_stream_through(evaluate, monkeypatch):
    monkeypatch.setattr("transformula.cli.point_evaluation.CHUNK_ROWS", 7001)
    x = np.random.default_rng(0).uniform(-1, 1, size=50_000)
    y = np.random.default_rng(1).uniform(0, 6, size=50_000)
    text = "x,y\n" + "".join(f"{a!r},{b!r}\n" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    result, rows = evaluate(text)
    assert result.code == 0 and len(rows) == 50_001
    got = np.array([float(r[2]) for r in rows[1:]])
    np.testing.assert_allclose(got, x**2 - y / 3, atol=1e-13)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("x,z\n1,2\n", "no column y"),
        ("a,b\n1,2\n", "no column x, y"),
        ("x,y,x\n1,2,3\n", "column x twice"),
        ("x,y\n1,2\nfoo,2\n", "line 3: x is 'foo'"),
        ("x,y\n1,2\n,2\n", "line 3: x is empty"),
        ("x,y\n1,2\n\n1,2\n", "line 3: the line is blank"),
        ("x,y\n\n1,2\n", "line 2: the line is blank"),
        ("x,y\n1,2\n1\n", "line 3: 1 values for 2 columns"),
        ("x,y\n1,2,3\n", "line 2: 3 values for 2 columns"),
        ("x,y\nnan,2\n", "line 2: x is nan"),
        ("x,y\n1,2\n1,inf\n", "line 3: y is inf"),
        ("x,y\n0,1\n1.5,2\n", "line 3: x = 3/2 is outside -1..1"),
        ("x,y\n0,6.2831853071795872\n", "outside 0..2*pi"),
        ('x,y\n"0\n",1\n0,bad\n', "line 4: y is 'bad'"),
        (b"x,y\n\xff\xfe,1\n", "not a text file in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff", "UTF-8"),
    ],
)
@pytest.mark.parametrize("exact", [[], ["--exact"]])
def test_a_bad_table_names_the_line(evaluate, text, said, exact):
    result, _ = evaluate(text, *exact)
    assert result.code == 2 and result.err.count("\n") == 1, result.err
    if not (exact and ("nan" in said or "inf" in said or "6.28" in str(text))):
        assert said in result.err
    assert "line" in result.err or "column" in result.err or "empty" in result.err or "UTF-8" in result.err


def test_a_late_mistake_leaves_no_half_written_result(evaluate, monkeypatch):
    monkeypatch.setattr("transformula.cli.point_evaluation.CHUNK_ROWS", 10)
    text = "x,y\n" + "0.5,1\n" * 95 + "oops,1\n"
    result, _ = evaluate(text)
    assert result.code == 2 and "line 97" in result.err


def test_ends_of_the_box_are_inside(evaluate):
    result, _ = evaluate(f"x,y\n-1,0\n1,{2 * np.pi!r}\n")
    assert result.code == 0


def test_a_byte_order_mark_and_windows_lines_are_read(evaluate):
    result, rows = evaluate("x,y\r\n1,0\r\n", encoding="utf-8-sig")
    assert result.code == 0 and float(rows[1][2]) == 1


@pytest.mark.parametrize("mark", [";", "\t"])
def test_semicolons_and_tabs_are_read_and_written(evaluate, tmp_path, mark):
    result, _ = evaluate(f'x{mark}"a, b"{mark}y\n1{mark}"c, d"{mark}0\n')
    assert result.code == 0
    header, row = (tmp_path / "out.csv").read_text().splitlines()
    assert header == f"x{mark}a, b{mark}y{mark}f"
    assert row.split(mark)[:3] == ["1", "c, d", "0"] and float(row.split(mark)[3]) == 1


def test_decimal_commas_are_not_misread(evaluate):
    result, _ = evaluate("x;y\n0,5;1\n")
    assert result.code == 2 and "x is '0,5', which is not a number: write a decimal point" in result.err


def test_a_header_alone_gives_a_header(evaluate):
    result, rows = evaluate("x,y\n")
    assert result.code == 0 and rows == [["x", "y", "f"]]


def test_a_column_named_f_is_kept(evaluate):
    _, rows = evaluate("f,x,y\n9,1,0\n")
    assert rows == [["f", "x", "y", "f_"], ["9", "1", "0", rows[1][3]]]


def test_the_same_file_twice_is_refused(cli, folder, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,1\n")
    result = cli("eval", folder, "--csv", str(path), "--out", str(tmp_path / "." / "t.csv"))
    assert result.code == 2 and "same file" in result.err and path.read_text() == "x,y\n1,1\n"


def test_missing_and_unwritable_files_are_named(cli, folder, tmp_path):
    result = cli("eval", folder, "--csv", str(tmp_path / "no.csv"), "--out", str(tmp_path / "o.csv"))
    assert result.code == 2 and "there is no file" in result.err
    (tmp_path / "t.csv").write_text("x,y\n1,1\n")
    result = cli("eval", folder, "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path / "no" / "o.csv"))
    assert result.code == 2 and "cannot write" in result.err
    result = cli("eval", folder, "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path))
    assert result.code == 2 and "Traceback" not in result.err


def test_several_outputs_make_several_columns(cli, tmp_path):
    folder = tf.compile(["x", "2*x"], on="x=0..1").save(tmp_path / "two")
    (tmp_path / "t.csv").write_text("x\n0.5\n")
    assert cli("eval", str(folder), "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csv")).code == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[0] == "x,f1,f2"


def test_an_interrupt_keeps_the_old_result(cli, folder, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("x,y\n1,1\n")
    (tmp_path / "o.csv").write_text("old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("transformula.cli.point_evaluation._floats", interrupt)
    result = cli("eval", folder, "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csv"))
    assert result.code == 130 and (tmp_path / "o.csv").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "o.csv", "t.csv"]
