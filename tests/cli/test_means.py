"""A claim about a mean on the command line: every output names it, and none of its numbers is called a bound."""

import json

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import transformula as tf

    model = tf.compile("x*y", on="x=0..1, y=0..1", eps=0.1, construction="yun")
    return model.save(tmp_path_factory.mktemp("means") / "cells")


def _seam(folder):
    """The middle of the first seam in x."""
    first, second = json.loads((folder / "evidence.json").read_text())["grid"]["x"][:2]
    return (first[-1] + second[0]) / 2


def test_compile_verify_and_the_kernel_alone(cli, folder, tmp_path):
    done = cli("compile", "x*y", "--on", "x=0..1, y=0..1", "--eps", "0.1", "--construction", "yun", "--json")
    facts = json.loads(done.out)
    assert done.code == 0 and facts["mean_bound"] <= facts["mean_eps"] == 0.1 and "bound" not in facts
    done = cli("verify", str(folder), "--json")
    facts = json.loads(done.out)
    assert (
        done.code == 0 and facts["verified"] and "bound" not in facts and facts["outside_seams"] > facts["mean_bound"]
    )
    assert "mean bound" in cli("verify", str(folder)).out
    from transformula.kernel.__main__ import line
    from transformula.kernel.check import verify_folder

    assert line(verify_folder(folder)).startswith("verified: the mean over the box of |computed - formula| <= ")
    assert "mean bound" in cli("show", str(folder)).out


def test_a_point_has_a_bound_outside_the_seams_only(cli, folder):
    done = cli("eval", str(folder), "--at", "x=0.1, y=0.1")
    assert done.code == 0 and "outside seams" in done.err and done.err.startswith("within 0.")
    facts = json.loads(cli("eval", str(folder), "--at", "x=0.1, y=0.1", "--json").out)
    assert facts["bound"] == json.loads((folder / "certificate.json").read_text())["mean"]["outside"]
    at = f"x={_seam(folder)!r}, y=0.1"
    assert json.loads(cli("eval", str(folder), "--at", at, "--json").out)["bound"] is None
    assert "lies in a seam" in cli("eval", str(folder), "--at", at).err


def test_tables_and_exports(cli, folder, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n0.1,0.2\n")
    facts = json.loads(
        cli("eval", str(folder), "--csv", str(tmp_path / "in.csv"), "--out", str(tmp_path / "o.csv"), "--json").out
    )
    assert "bound" not in facts and facts["mean_bound"] <= 0.1
    pytest.importorskip("torch")
    done = cli("export", str(folder), "--to", "torch", "--out", str(tmp_path / "torch"), "--json")
    facts = json.loads(done.out)
    assert done.code == 0 and "bound" not in facts and facts["mean_bound"] <= 0.1 and facts["parity"] < 1e-12
    done = cli("export", str(folder), "--to", "torch", "--layer-norm", "--out", str(tmp_path / "normed"))
    assert done.code != 0 and "no stock layer has the attention of a model by yun" in done.err


def test_a_batch_names_the_norm(cli, tmp_path):
    (tmp_path / "in.csv").write_text(
        'name,formula,box,eps,construction\na,x*y,"x=0..1, y=0..1",0.2,yun\nb,x,x=0..1,,\n'
    )
    done = cli("batch", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out"), "--jobs", "1")
    assert done.code == 0 and done.out.count("(mean)") == 1, done.err
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]
    assert [row["norm"] for row in rows] == ["mean", "sup"]
    assert "of the mean error over the box" in (tmp_path / "out" / "summary.html").read_text()
