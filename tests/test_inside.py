"""Looking inside a model: residuals by slot, patterns with labels, tables."""

import numpy as np
import pytest

import transformula as tf
from support.one_layer_models import model_named
from transformula.errors import InputError, PointError


@pytest.fixture(scope="module")
def model():
    return tf.compile("sin(x1) + exp(x2/2)", on="x1=0..3, x2=-1..1", eps=1e-4)


def test_a_trace_has_names(model):
    seen = model.trace([[0.5, 1.0], [3.0, -1.0]])
    assert seen.residual("x.x2", block=0, token="data", before=True).tolist() == [1.0, -1.0]
    assert seen.residual("y1", block=0, before=True).shape == (2, model.tokens)
    assert not seen.residual("y1", block=0, token=0, before=True).any() and seen.residual("y1", token=0).all()
    np.testing.assert_allclose(seen.outputs[:, 0], model([[0.5, 1.0], [3.0, -1.0]]))
    assert seen.tokens[:3] == ("data", "table 0, token 0", "table 0, token 1") and len(seen.tokens) == model.tokens


def test_attention_stays_in_its_own_table(model):
    seen = model.trace([[0.5, 1.0]])
    for head in range(2):
        top = seen.attended(head=head, most=2)
        assert all(label.startswith(f"table {head}, ") for label, _ in top)
        assert [w for _, w in top] == sorted((w for _, w in top), reverse=True)
        assert seen.pattern(head=head).sum() == pytest.approx(1)


def test_tables_say_what_they_are(model):
    first, second = model.tables
    assert (first.function, second.function) == ("sin(x1)", "exp(1/2*x2)")
    assert first.arguments == ("x1",) and first.ranges == ((0.0, 3.0),) and first.writes == ("y1",)
    assert "sin(x1)" in repr(first) and "tokens" in repr(first)
    assert (np.diff(first.transitions) > 0).all()
    # what the table computes is what the trace shows
    seen = model.trace([[0.7, 0.2]])
    scores = first.slopes[:, 0] * 0.7 + first.offsets[:, 0]
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    shown = seen.pattern(head=0)[0, 1 : 1 + len(weights)]
    np.testing.assert_allclose(shown, weights, atol=1e-12)


def test_circuits_have_tables_of_wires(circuits):
    model = circuits("kinks")
    functions = [t.function for t in model.tables]
    assert "sin(u)" in functions and "u**2" in functions
    x = np.random.default_rng(0).uniform([-1, 0], [1, 2], size=(50, 2))
    seen = model.trace(x)
    for table in model.tables:
        (wire,) = table.writes
        low, high = table.ranges[0]
        u = {"sin(u)": np.arcsin, "u**2": np.sqrt}.get(table.function)
        value = seen.residual(wire, token="data")
        assert np.isfinite(value).all() and low < high
        if u is not None:
            assert (u(np.clip(value, 0, 1)) <= max(abs(low), abs(high)) + 1e-3).all()


def test_sequences_and_polynomials_name_their_tokens():
    sequence = model_named("sequence")
    assert sequence.trace([[0.5, 0.5]]).tokens[:2] == ("position 0", "position 1")
    polynomial = tf.compile("x*y", on="x=-1..1, y=0..2")
    seen = polynomial.trace([[0.5, 1.0]])
    assert seen.tokens == ("direction 0", "direction 1") and polynomial.tables == ()
    t = seen.residual("t", block=0, before=True)
    np.testing.assert_allclose(np.abs(seen.residual("p2")), t**2)


def test_memorised_models_have_one_table():
    (table,) = model_named("memorize").tables
    assert table.function == "" and len(table.arguments) == 2 and table.values.shape == (24, 2)
    with pytest.raises(InputError, match="several"):
        _ = table.transitions


def test_wrong_names_get_a_sentence(model):
    seen = model.trace([[0.5, 1.0]])
    with pytest.raises(InputError, match=r"there is no slot 'y9': the slots are x\.x1"):
        seen.residual("y9")
    with pytest.raises(InputError, match="there is no token"):
        seen.residual("y1", token="table 9 [0]")
    with pytest.raises(PointError, match="expected rows of 2"):
        model.trace([[1.0]])


def test_a_trace_introduces_itself_in_one_line():
    seen = tf.compile("sin(x) + cos(y)", on="x=0..1, y=0..1", eps=1e-2).trace([[0.5, 0.5], [1, 1]])
    assert repr(seen).startswith("<trace of 2 samples: ") and repr(seen).endswith("heads by block: 2>")
