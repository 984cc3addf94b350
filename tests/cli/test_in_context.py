"""The verb in-context, and every other verb on its folders."""

import json

import pytest

RIDGE = ("--pairs", "4", "--features", "2")


def _json(result):
    assert result.code == 0, result
    return json.loads(result.out)


def test_the_issues_own_command(cli, tmp_path):
    folder = str(tmp_path / "icl")
    asked = ("in-context", "ridge", "--pairs", "16", "--features", "3", "--steps", "8", "--out", folder, "--json")
    facts = _json(cli(*asked))
    assert facts["construction"] == "in-context" and (facts["layers"], facts["heads"], facts["tokens"]) == (8, 8, 20)
    assert facts["approximation"] == 0 and 0 < facts["bound"] <= facts["eps"] < 1e-11 and facts["status"] == "proven"
    assert _json(cli("verify", folder, "--json"))["verified"] is True
    shown = cli("show", folder).out
    assert "8 gradient steps" in shown and "0 to 7: linear attention with query x1, x2, x3 and key k1, k2, k3" in shown
    exported = _json(cli("export", folder, "--to", "onnx", "--json"))
    assert exported["graph"] == "blocks" and exported["parity"] <= exported["rounding"]
    assert cli("verify", folder, "--onnx", str(tmp_path / "icl" / "model.onnx")).code == 0
    assert _json(cli("report", folder, "--json"))["verified"] is True
    page = (tmp_path / "icl" / "report.html").read_text()
    assert "8 gradient steps on ridge regression" in page and "every prompt of the box" in page


@pytest.mark.parametrize(
    "asked",
    [
        ("lasso", *RIDGE, "--steps", "3", "--looped"),
        ("kernel", *RIDGE),
        ("recurrence", "--steps", "4"),
        ("ridge", *RIDGE),
    ],
)
def test_every_algorithm_goes_through_every_verb(cli, tmp_path, asked):
    folder = str(tmp_path / "model")
    assert cli("in-context", *asked, "--dtype", "float64", "--out", folder).code == 0
    assert cli("verify", folder).code == 0 and cli("show", folder).code == 0
    assert cli("report", folder, "--plots", folder + "-plots").code == 0
    exported = _json(cli("export", folder, "--to", "torch", "--json"))
    assert exported["within_rounding"] is True


def test_a_point_and_exact_rationals(cli, tmp_path):
    folder = str(tmp_path / "model")
    cli("in-context", "recurrence", "--steps", "3", "--out", folder)
    assert cli("eval", folder, "--at", "a=1/2, b=1, x=1/3", "--exact").out.split() == ["7/6", "19/12", "43/24"]
    outside = cli("eval", folder, "--at", "a=1/2, b=1, x=4")
    assert outside.code == 2 and "outside -1..1" in outside.err


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (("ridge", "--pairs", "0", "--features", "3"), 2, "pairs must be a whole number above 0, not 0"),
        (("ridge", "--pairs", "2", "--features", "1000000000"), 2, "3000000002 numbers; at most 1000"),
        (("ridge", "--pairs", "4"), 2, "give the number of features"),
        (("ridge", *RIDGE, "--penalty", "-1"), 2, "penalty must be above 0, not -1"),
        (("ridge", *RIDGE, "--penalty", "0"), 2, "give steps for gradient descent"),
        (("ridge", *RIDGE, "--penalty", "nan"), 2, "penalty is given as nan"),
        (("ridge", *RIDGE, "--penalty", "pi"), 2, "penalty must be a rational number"),
        (("ridge", *RIDGE, "--penalty", "0." + "1" * 70), 2, "more than 60 digits"),
        (("ridge", *RIDGE, "--eps", "nan"), 2, "eps must be a number above 0"),
        (("ridge", *RIDGE, "--eps", "-1"), 2, "eps must be a number above 0"),
        (("ridge", *RIDGE, "--rate", "1"), 2, "ridge takes no rate"),
        (("ridge", *RIDGE, "--bandwidth", "1"), 2, "ridge takes no bandwidth"),
        (("ridge", *RIDGE, "--steps", "1001"), 2, "1001 steps are too many: at most 1000"),
        (("lasso", *RIDGE, "--steps", "501"), 2, "501 steps are too many: at most 500"),
        (("lasso", *RIDGE), 2, "give the number of steps"),
        (("ridge", *RIDGE, "--looped"), 2, "the layers of ridge are not equal, so they cannot be looped"),
        (("recurrence", "--steps", "3", "--looped"), 2, "the layers of recurrence are not equal"),
        (("kernel", *RIDGE, "--steps", "3"), 2, "kernel takes no steps"),
        (("svm", *RIDGE), 2, "unknown algorithm 'svm': choose ridge, lasso, kernel, recurrence"),
        (("ridge", *RIDGE, "--dtype", "float16"), 2, "unknown dtype"),
        (("ridge", *RIDGE, "--eps", "1e-17"), 1, "eps = 1e-17 is not proven: the best bound is"),
        (("kernel", *RIDGE, "--bandwidth", "1/1000"), 1, "take a larger bandwidth or a smaller box"),
        (("recurrence", "--steps", "500", "--a", "10"), 1, "beyond float64's range"),
    ],
)
def test_what_cannot_be_done_gets_one_sentence(cli, asked, code, said):
    result = cli("in-context", *asked)
    assert result.code == code and result.out == ""
    assert said in result.err and result.err.count("\n") == 1 and "Traceback" not in result.err
