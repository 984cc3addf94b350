"""In-context models: the blocks are the algorithms, their claims hold where they are attacked, and nothing else passes."""

import copy
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq

import transformula as tf
from support.claims import refuses_a_hair_less
from support.folders import open_model
from support.in_context_models import MODELS, RATIONAL, exact_answer, fractions, learner, prompts
from transformula.budget import one_thread
from transformula.compiler.gallery.prompt_models import _written
from transformula.errors import NotProvenError
from transformula.kernel.check import verify_files
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.gallery.in_context_blocks import PromptTask, plan_of
from transformula.kernel.gallery.in_context_rule import prove_in_context
from transformula.runtime import reference

DTYPES = ("float64", "float32")
BOTH = [(name, dtype) for name in MODELS for dtype in DTYPES if (name, dtype) != ("sixteen pairs", "float32")]


def _exact(model, row):
    return [Fraction(int(v.p), int(v.q)) for v in model.exact([fmpq(r.numerator, r.denominator) for r in row])]


@pytest.mark.parametrize("name", RATIONAL)
def test_the_blocks_are_the_algorithm(name):
    """On rationals, with ==; ridge in closed form up to what is claimed of the iteration."""
    model = learner(name)
    for row in prompts(model, 2, seed=3)[:6]:
        given = [v.limit_denominator(50) for v in fractions(row)]
        found, wanted = _exact(model, given), exact_answer(model, given)
        if model.formula.task.algorithm == "ridge":
            assert abs(found[0] - wanted[0]) <= model.certificate.approximation
        else:
            assert found == wanted
            assert model.certificate.approximation == 0


@pytest.mark.parametrize("steps", [1, 2, 9, 60])
def test_any_number_of_steps_is_exact(steps):
    model = tf.in_context("ridge", pairs=2, features=1, steps=steps, penalty="1/2", rate="2/5")
    assert model.layers == steps and model.certificate.approximation == 0
    given = [Fraction(1, 3), Fraction(-1, 2), Fraction(1), Fraction(2, 3), Fraction(3, 4)]
    assert _exact(model, given) == exact_answer(model, given)


@pytest.mark.parametrize(("algorithm", "steps"), [("ridge", 40), ("lasso", 20)])
def test_a_loop_is_the_same_model_with_the_weights_of_one_step(algorithm, steps, tmp_path):
    one, unrolled, loop = (
        tf.in_context(algorithm, pairs=4, features=2, steps=k, looped=again)
        for k, again in ((1, False), (steps, False), (steps, True))
    )
    assert loop.layers == unrolled.layers == steps * one.layers
    assert loop.parameter_count == one.parameter_count < unrolled.parameter_count / 5
    assert len(loop.packed.arrays) == len(one.packed.arrays) and loop.certificate.bound == unrolled.certificate.bound
    rows = prompts(loop, 10)
    np.testing.assert_array_equal(loop(rows), unrolled(rows))
    again = tf.load(loop.save(tmp_path / "loop"))
    assert len({id(block) for block in again.weights.blocks}) == one.layers and tf.verify(tmp_path / "loop").verified
    np.testing.assert_array_equal(again(rows), loop(rows))
    module = loop.to_torch()
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in one.to_torch().parameters())


@pytest.mark.parametrize("number", [1, 6, -1, True, 0.0, "0", None])
def test_a_loop_goes_back_to_an_earlier_block(number):
    data = open_model(learner("loop"))
    assert data.body["blocks"][1:] == [0] * 5
    data.body["blocks"][1] = number
    result = verify_files(*data.forged())
    assert not result.verified and "malformed" in " ".join(result.reasons)


def test_a_thousand_steps_are_proven_and_their_rounding_adds_up():
    short, long = (tf.in_context("ridge", pairs=8, features=2, steps=k) for k in (100, 1000))
    assert long.layers == 1000 and short.certificate.rounding < long.certificate.rounding < 1e-7


@pytest.mark.parametrize(("name", "dtype"), BOTH)
def test_attacked(name, dtype):
    """Random prompts, corners, pairs that are all alike, and ascent on the error: all within the bound."""
    model = learner(name, dtype)
    rows = prompts(model, 30)
    if name == "kernel":
        wanted = model.formula.answers(rows.astype(float))
    else:
        wanted = np.array([[float(v) for v in exact_answer(model, fractions(row))] for row in rows])
    error = np.abs(reference.run(model.weights, rows).astype(float) - wanted).max(axis=1)
    assert error.max() <= model.certificate.bound
    assert tf.verify(model).verified
    worst, high = rows[error.argmax()], np.array(model.box.floats())[:, 1]
    rng = np.random.default_rng(1)
    for scale in (0.3, 0.1, 0.03):  # uphill from the worst
        near = np.clip(worst + scale * high * rng.normal(size=(200, len(high))), -high, high).astype(dtype)
        errors = np.abs(reference.run(model.weights, near).astype(float) - model.formula.answers(near)).max(axis=1)
        worst = near[errors.argmax()]
        assert errors.max() <= model.certificate.bound + 1e-13  # the oracle here rounds as well


def test_ridge_is_what_scikit_learn_says():
    """Sixteen pairs, three features, penalty 1: within 1e-6 at ten thousand prompts, in ten layers."""
    from scipy.linalg import block_diag
    from sklearn.linear_model import Ridge

    model = learner("sixteen pairs")
    assert model.layers == model.heads == 10 and model.certificate.bound <= 1e-6
    rng = np.random.default_rng(0)
    x, y, q = rng.uniform(-1, 1, (10_000, 16, 3)), rng.uniform(-1, 1, (10_000, 16)), rng.uniform(-1, 1, (10_000, 3))
    judge, wanted = Ridge(alpha=1.0, fit_intercept=False, solver="cholesky"), []
    with one_thread():
        for first in range(0, len(x), 10):  # prompts on a diagonal do not know of each other
            some = slice(first, first + 10)
            coefficients = judge.fit(block_diag(*x[some]), y[some].ravel()).coef_.reshape(-1, 3)
            wanted.extend((coefficients * q[some]).sum(axis=1))
    found = model(model.formula.rows(x, y, q))
    assert np.abs(found - wanted).max() <= model.certificate.bound


def test_lasso_goes_where_scikit_learn_goes():
    from sklearn.linear_model import Lasso

    model = tf.in_context("lasso", pairs=16, features=3, steps=150, penalty=2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, y, q = rng.uniform(-1, 1, (16, 3)), rng.uniform(-1, 1, 16), rng.uniform(-1, 1, 3)
        judge = Lasso(alpha=2 / 16, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(x, y)
        found = model(model.formula.rows(x, y, q))
        assert np.abs(found - judge.coef_ @ q).max() < 1e-3


def test_the_learned_weights_can_be_read_off_the_constant_tokens():
    model = tf.in_context("ridge", pairs=16, features=3, steps=900, penalty=10)
    rng = np.random.default_rng(0)
    x, y, q = rng.uniform(-1, 1, (16, 3)), rng.uniform(-1, 1, 16), rng.uniform(-1, 1, 3)
    seen = model.trace(model.formula.rows(x, y, q))
    held = [float(seen.residual("p", token=f"weight {k}")[0]) for k in range(3)]
    assert np.allclose(held, np.linalg.solve(x.T @ x + 10 * np.eye(3), x.T @ y), atol=1e-12)


def _random_task(rng):
    """An algorithm with numbers of very different sizes, and its options."""

    def size():
        return Fraction(int(rng.choice([1, 3, 7]))) * Fraction(10) ** int(rng.choice([-12, -3, -1, 0, 0, 0, 1, 3, 8]))

    name, x = str(rng.choice(["descent", "ridge", "lasso", "recurrence"])), size()
    given = {"x": x, "dtype": str(rng.choice(DTYPES))}
    if name == "recurrence":
        return name, given | {"steps": int(rng.integers(1, 8)), "a": size(), "b": size()}
    given |= {"y": size(), "pairs": int(rng.integers(1, 5)), "features": int(rng.integers(1, 4))}
    if name == "ridge":
        return name, given | {"penalty": size() * x**2, "eps": 1e300}
    given |= {"steps": int(rng.integers(1, 6)), "penalty": size() if rng.random() < 0.5 else 0}
    if rng.random() < 0.5:
        given["rate"] = size() / x**2
    return ("ridge" if name == "descent" else name), given


def test_random_tasks_at_prompts_that_are_no_floats():
    """Small and large boxes, rates that diverge, prompts down to underflow: no bound is broken."""
    rng, proven = np.random.default_rng(0), 0
    for _ in range(60):
        name, given = _random_task(rng)
        try:
            model = tf.in_context(name, **given)
        except NotProvenError:
            continue
        proven += 1
        rows = prompts(model, 2, seed=proven)
        rows = np.concatenate([rows, (rows * 10.0 ** rng.uniform(-25, 0, (len(rows), 1))).astype(rows.dtype)])
        nudge = 1 + Fraction(2, 5) * Fraction(float(np.finfo(rows.dtype).epsneg))
        ends = [end.number for end in model.box.upper]
        exact = [[max(-e, min(e, v * nudge)) for v, e in zip(fractions(r), ends, strict=True)] for r in rows]
        rounded = np.array([[float(v) for v in row] for row in exact]).astype(rows.dtype)
        for found, row in zip(reference.run(model.weights, rounded), exact, strict=True):
            for got, wanted in zip(found, exact_answer(model, row), strict=True):
                assert abs(Fraction(float(got)) - wanted) <= Fraction(model.certificate.bound), (name, given)
    assert proven > 40


# -- forgeries: every checksum is recomputed -----------------------------------------------------------------

CHANGES = {"a little": lambda v: v * 1.0001, "half": lambda v: v / 2, "sign": lambda v: -v, "zero": lambda v: v * 0}


@pytest.mark.parametrize("name", MODELS)
def test_every_number_matters(name):
    """Whatever entry is changed, alone or with its rational: refused, or (ridge's own start) still true."""
    model = learner(name)
    data, rows = open_model(model), prompts(model, 20)
    assert verify_files(*data.forged()).verified
    rng = np.random.default_rng(0)
    tried = 0
    for array in [a for a in data.arrays if a.endswith(".values") and len(data.arrays[a])]:
        stem = array.removesuffix(".values")
        if stem.startswith("blocks.") and not stem.startswith(
            ("blocks.0.", "blocks.1.", f"blocks.{model.layers - 1}.")
        ):
            continue
        for what in rng.permutation(list(CHANGES))[:2]:
            changed = copy.deepcopy(data)
            k = rng.integers(len(changed.arrays[array]))
            new = CHANGES[what](changed.arrays[array][k])
            changed.arrays[array][k] = new
            if stem in changed.body["exact"]:
                changed.body["exact"][stem][k] = str(fmpq(*float(new).as_integer_ratio()))
            result = verify_files(*changed.forged())
            assert not result.verified and "not those of the algorithm" in " ".join(result.reasons), (array, k, what)
            tried += 1
    assert tried >= 6
    # another start of the iteration, everywhere alike, is another model: its bound is its own
    if model.formula.task.algorithm == "ridge":
        changed = copy.deepcopy(data)
        start = float(np.min(changed.arrays["embedding.values"]))
        for part in ("embedding", "memory"):
            values = changed.arrays[f"{part}.values"]
            values[values == start] = start / 2
            for k, text in enumerate(changed.body["exact"].get(part, ())):
                if Fraction(text) == Fraction(start):
                    changed.body["exact"][part][k] = str(Fraction(start) / 2)
        result = verify_files(*changed.forged())
        weights = unpack(changed.forged()[0])[0]
        error = np.abs(reference.run(weights, rows) - model.formula.answers(rows)).max()
        assert result.bound is not None and error <= result.bound


@pytest.mark.parametrize("name", MODELS)
def test_every_place_matters(name):
    model = learner(name)
    data = open_model(model)
    rng = np.random.default_rng(2)
    for array in [a for a in data.arrays if not a.endswith(".values") and len(data.arrays[a])][:40]:
        stem, part = array.rsplit(".", 1)
        limit = data.body["shapes"][stem][part == "cols"]
        if limit == 1:
            continue
        changed = copy.deepcopy(data)
        k = rng.integers(len(changed.arrays[array]))
        changed.arrays[array][k] = (changed.arrays[array][k] + rng.integers(1, limit)) % limit
        assert not verify_files(*changed.forged()).verified, (array, k)


#: model, what model.json says instead
SAID = [
    ("descent", {"penalty": "1/4"}),
    ("descent", {"rate": "1/10"}),
    ("descent", {"steps": 5}),
    ("loop", {"steps": 5}),
    ("loop", {"rate": "1/10"}),
    ("descent", {"pairs": 4}),
    ("descent", {"algorithm": "lasso"}),
    ("descent", {"x": "2"}),
    ("descent", {"x": "-1"}),
    ("descent", {"x": "0"}),
    ("descent", {"x": "1/0"}),
    ("descent", {"x": 1}),
    ("descent", {"x": "nan"}),
    ("descent", {"pairs": True}),
    ("descent", {"pairs": 10**9}),
    ("descent", {"features": 0}),
    ("descent", {"more": 1}),
    ("descent", {"algorithm": ["descent"]}),
    ("sixteen pairs", {"penalty": "1/2"}),
    ("sixteen pairs", {"penalty": "0"}),
    ("sixteen pairs", {"y": "100"}),
    ("lasso", {"penalty": "1/4"}),
    ("lasso", {"algorithm": "descent"}),
    ("kernel", {"bandwidth": "1/2"}),
    ("recurrence", {"a": "4"}),
    ("recurrence", {"steps": 4}),
]


@pytest.mark.parametrize(("name", "said"), SAID)
def test_what_the_model_is_said_to_compute_matters(name, said):
    data = open_model(learner(name))
    data.body["task"] |= said
    result = verify_files(*data.forged())
    assert not result.verified and result.reasons


@pytest.mark.parametrize("kind", ["softmax", "hardmax", "cubic", None])
def test_other_attention_is_refused(kind):
    data = open_model(learner("descent"))
    data.body["blocks"][1]["kind"] = kind
    assert not verify_files(*data.forged()).verified


@pytest.mark.parametrize("construction", ["polynomial", "lookup", "memorize", "corollary", "circuit"])
def test_linear_attention_passes_for_nothing_else(construction):
    data = open_model(learner("recurrence"))
    data.body["construction"] = data.claim["construction"] = construction
    for key, value in (("formulas", ["a*x + b"] * 5), ("box", "a=-1..1, b=-1..1, x=-1..1"), ("task", None)):
        data.body[key] = value
    if construction in ("lookup", "circuit"):
        data.body["circuit"] = {}
    if construction == "memorize":
        data.body |= {"formulas": None, "box": None, "samples": {"x": [[1, 1, 1]], "y": [[2, 3, 4, 5, 6]]}}
    assert not verify_files(*data.forged()).verified


def test_a_claim_a_hair_too_tight_is_refused():
    refuses_a_hair_less(open_model(learner("sixteen pairs")))


def test_numbers_beyond_the_format_are_refused():
    with pytest.raises(NotProvenError, match="beyond float32's range"):
        tf.in_context("recurrence", steps=200, a=2, dtype="float32")
    with pytest.raises(NotProvenError, match="beyond float64's range"):
        tf.in_context("ridge", pairs=8, features=2, steps=800, rate=2)


def test_penalties_that_overflow_a_score_are_refused():
    """Constant tokens answer with the penalty: the query's score there is infinite, and infinity times 0 no number."""
    task = PromptTask("ridge", pairs=1, features=1, penalty=3 * fmpq(10) ** 38, x=fmpq(1), y=fmpq(10) ** -38)
    weights = _written(task, plan_of(task, fmpq(2), 0), "float32")
    with np.errstate(all="ignore"):
        assert np.isnan(reference.run(weights, np.array([[1, 1e-38, 1]]))).all()
    with pytest.raises(NotProvenError, match="beyond float32's range"):
        prove_in_context(weights, task)
