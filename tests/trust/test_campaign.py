"""A slice of the campaign (benchmarks/campaign.py): random formulas, compiled, verified and attacked."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest

import campaign
import transformula as tf
from truth import Domain, Truth

#: Seeds of formulas that take little time; the others are for the script.
SEEDS = (6, 9, 13, 14, 19, 21, 26, 27, 30, 32)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_proven_is_true(seed):
    task = campaign.make_task(seed)
    assert asdict(campaign.make_task(seed)) == asdict(task)
    kind, result, *_ = campaign.in_child(lambda: asdict(campaign.run_task(task, points=600)), 30)
    assert kind == "ok", result
    assert result["status"] == "proven", result
    assert result["worst"] <= result["bound"] <= task.options["eps"]
    assert result["executors"] == ["numpy", "blocks", "torch", "tensor"]


def test_formulas_differ_in_everything_that_matters():
    tasks = [campaign.make_task(seed) for seed in range(150)]
    text = " ".join(formula for task in tasks for formula in task.formulas)
    for part in ("sin(", "sqrt(", "abs(", "min(", "max(", "/", "**", "exp(", "log(", "asin(", "sinc("):
        assert part in text
    names = {name for task in tasks for name in Domain(task.box).names}
    assert {"x", "u", "u1", "w1", "q0", "E", "pi"} & names >= {"x", "u"} and len(names) > 25
    assert {task.box.count("=") for task in tasks} == {1, 2, 3, 4, 5, 6}
    assert {task.options["dtype"] for task in tasks} == {"float64", "float32"}
    assert {task.options["construction"] for task in tasks} >= {"auto", "circuit", "lookup"}


def test_an_attack_finds_an_error():
    task = campaign.Task(1, ["sin(3*x)"], "x=-1..1", {"eps": 0.05})
    model = tf.compile("sin(3*x)", on="x=-1..1", eps=0.05)
    worst, _, used = campaign.attack(model, task, 400, False)
    assert 0 < worst <= model.certificate.bound and len(used) == 4
    wrong, place, _ = campaign.attack(model, replace(task, formulas=["sin(3*x) + x/4"]), 400, False)
    assert wrong > 0.2 > model.certificate.bound and "at [" in place
    undefined, *_ = campaign.attack(model, replace(task, formulas=["sqrt(x)"]), 400, False)
    assert undefined == math.inf


def test_a_job_that_runs_away_is_stopped():
    def forever():
        while True:
            pass

    kind, _, seconds, _ = campaign.in_child(forever, 1)
    assert kind == "killed" and seconds < 4
    kind, said, *_ = campaign.in_child(lambda: 1 / 0, 5)
    assert kind == "crash" and "ZeroDivisionError" in said


@pytest.mark.parametrize(
    ("text", "point", "value"),
    [
        ("-x**2 + 2**-x", [2.0], -3.75),
        ("0.1*x", [10.0], 1.0),
        ("sin(x)/x", [0.0], 1.0),
        ("sqrt(x)", [-1.0], None),
        ("log(x)", [0.0], None),
        ("1/x", [0.0], None),
        ("x**(1/3)", [-8.0], None),
        ("x/2/4", [16.0], 2.0),
        ("max(x, 1, 2) - min(x, 0)", [-3.0], 5.0),
        ("E**pi*0 + x", [1.0], 1.0),
    ],
)
def test_the_evaluator_of_its_own(text, point, value):
    found = Truth(text, ["x"]).at(point)
    assert found is None if value is None else abs(found - value) < 1e-15
    rough = float(Truth(text, ["x"]).rough([point])[0])
    assert value is None or math.isnan(rough) or rough == pytest.approx(value)


def test_points_lie_in_the_box():
    domain = Domain("x=0.1..2*pi, y=-1/3..sqrt(2)")
    points = domain.points(np.random.default_rng(0), 500)
    for end, column in (("0.1", points[:, 0].min()), ("-1/3", points[:, 1].min())):
        assert Truth(f"x - ({end})", ["x"]).at([column]) >= 0
    for end, column in (("2*pi", points[:, 0].max()), ("sqrt(2)", points[:, 1].max())):
        assert Truth(f"({end}) - x", ["x"]).at([column]) >= 0
