"""The verb compare: a table, JSON and a figure."""

import json

from transformula.compiler.comparison import TRIED


def test_table_json_and_figure(cli, tmp_path):
    def run(*arguments):
        done = cli("compare", *arguments)
        return done.code, done.out, done.err

    code, out, err = run("x*y", "--on", "x=0..1, y=0..1", "--eps", "0.1", "--out", str(tmp_path / "c.svg"))
    assert code == 0 and [line.split() for line in out.splitlines()[:2]] == [
        ["memory", "proven"], ["construction", "layers", "heads", "tokens", "parameters", "bound", "seconds"],
    ]  # fmt: skip
    assert max(map(len, out.splitlines())) <= 80
    lines = out.splitlines()[2:]
    assert [line.split()[0] for line in lines if "(mean)" in line] == ["yun"]
    assert len(lines) == len(TRIED) and (tmp_path / "c.svg").read_bytes().startswith(b"<?xml")
    code, out, _ = run("x*y", "--on", "x=0..1, y=0..1", "--eps", "0.1", "--json")
    facts = json.loads(out)
    assert code == 0 and facts["smallest"] == "polynomial" and len(facts["constructions"]) == len(TRIED)
    assert [entry["name"] for entry in facts["constructions"] if entry["norm"] == "mean"] == ["yun"]
    code, _, err = run("x", "--on", "x=0..1", "--out", "c.pdf")
    assert code == 2 and "ends in .png or .svg" in err and not (tmp_path / "c.pdf").exists()
