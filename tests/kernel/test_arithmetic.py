"""FLINT's settings belong to the whole process: no other thread's may reach a proof."""

import threading

import pytest
from flint import arb, arb_series, ctx

import transformula as tf
from support.folders import open_model
from transformula.errors import RefutedError
from transformula.kernel.arithmetic import coefficients, precision, series_length
from transformula.kernel.check import verify_files
from transformula.kernel.enclosures import balls as series
from transformula.kernel.enclosures.balls import SeriesOf
from transformula.kernel.functions.elementary_functions import of_series
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.syntax.parsing import parse


def _in_another_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


@pytest.fixture
def cut_short():
    """Another thread that shortens all series behind our back, as a program that uses python-flint itself may."""
    before = ctx.cap

    def cut(*_):
        _in_another_thread(lambda: setattr(ctx, "cap", 2))

    yield cut
    ctx.cap = before


def test_coefficients_beyond_the_length_are_an_error_and_not_zero(cut_short):
    def exp(u):
        cut_short()
        return u.exp()

    with pytest.raises(RefutedError, match="2 coefficients where 5 are needed"):
        of_series(exp)(arb(1), 5)
    assert of_series(arb_series.exp)(arb(1), 5)[4] * 24 - arb(1).exp() < 1e-12


@pytest.mark.parametrize("name", ["exp", "sqrt", "atan", "erf", "sinc", "zeta", "tanh", "cbrt"])
def test_every_expansion_notices(name, cut_short, monkeypatch):
    """The other thread comes while the argument of the function is being computed."""
    entry = FUNCTIONS[name]
    expanded = SeriesOf(parse(f"{name}(u**2 + u + 3)", ("u",)), "u")

    def interrupted(argument):
        cut_short()
        return entry.series(argument)

    fake = type(entry)(**{**vars(entry), "series": interrupted})
    monkeypatch.setitem(FUNCTIONS, name, fake)
    with pytest.raises(RefutedError, match="coefficients where"):
        expanded.expand(arb("0.5"), arb("0.25"), 8)


def _forged():
    """A table that is 1e-9 everywhere, claimed to be x**14 on -1..1: its error is 1."""
    opened = open_model(tf.compile("x**14", on="x=-1..1", eps=2, construction="lookup"))
    opened.arrays["memory.values"] = opened.arrays["memory.values"] * 0 + [1, 1, 1e-9, 1]
    for part in ("values", "rows", "cols"):
        opened.arrays[f"readout.{part}"] = opened.arrays[f"readout.{part}"][-1:]
    opened.arrays["readout.values"][:] = 1
    opened.body["circuit"]["wires"][0]["table"] = "u**14"
    opened.body["circuit"]["outputs"] = [{"wires": [[1, "1"]], "plus": "0"}]
    whole = [-1.0000000000000013, 1.0000000000000013]
    opened.evidence["tables"][0].update(pieces=whole, cells=whole, softmax=[whole], slopes=whole)
    opened.claim.update(approximation=1e-6, rounding=1e-6, eps=1e-5)
    return opened


def test_a_forged_folder_is_refused_whatever_another_thread_does(cut_short, monkeypatch):
    """With its series cut short, x**14 looked like 0, which is what this table holds: it was verified."""
    forged = _forged().forged()
    assert not verify_files(*forged).verified
    power = series.whole_power

    def interrupted(base, exponent):
        cut_short()
        return power(base, exponent)

    monkeypatch.setattr(series, "whole_power", interrupted)
    assert not verify_files(*forged).verified


def test_one_thread_at_a_time_holds_the_settings():
    entered, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with series_length(3), precision(77):
            entered.set()
            leave.wait()
            seen.append((ctx.cap, ctx.prec))

    with precision(60), series_length(20):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2), "the other thread must wait for this one"
        assert (ctx.cap, ctx.prec) == (20, 60)
        assert len(coefficients(arb_series([1, 1], 20).exp(), 20)) == 20
    assert entered.wait(60)
    leave.set()
    thread.join()
    assert seen == [(3, 77)]
