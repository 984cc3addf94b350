"""The Python API, as its documentation promises it."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import fmpq

import transformula as tf
from transformula.errors import FormulaError, InputError, PointError


@pytest.fixture(scope="module")
def model():
    return tf.compile("x**2 + y/4", on={"x": (-10, 10), "y": (-10, 10)})


@pytest.fixture(scope="module")
def two():
    return tf.compile(["x*y", "x - y"], on="x=-1..1, y=-1..1")


def test_shapes_of_one_output(model):
    assert model([[3, 4], [0, 2]]).tolist() == [10.0, 0.5]
    assert model(np.array([3.0, 4.0])) == 10.0 and np.ndim(model([3, 4])) == 0
    assert model(np.empty((0, 2))).shape == (0,)
    assert model(((3, 4),)).dtype == np.float64
    assert model(np.array([[3, 4]], dtype=np.float32)).dtype == np.float64
    assert model(np.asfortranarray([[3.0, 4.0]] * 5)).shape == (5,)


def test_shapes_of_several_outputs(two):
    assert two([[0.5, 1.0]]).tolist() == [[0.5, -0.5]]
    assert two([0.5, 1.0]).tolist() == [0.5, -0.5]
    assert two(np.zeros((7, 2))).shape == (7, 2)


def test_one_variable_takes_a_plain_list():
    square = tf.compile("x**2", on="x=-1..1")
    assert square([0.5, 1.0, -1.0]).tolist() == [0.25, 1.0, 1.0]
    assert square([[0.5], [1.0]]).tolist() == [0.25, 1.0]


def test_tensors_in_tensors_out_with_gradients(model, two):
    x = torch.tensor([[3.0, 4.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    y = model(x)
    assert isinstance(y, torch.Tensor) and y.shape == (2,)
    y.sum().backward()
    assert torch.allclose(x.grad, torch.tensor([[6.0, 0.25], [2.0, 0.25]], dtype=torch.float64))
    assert two(torch.zeros(3, 2)).shape == (3, 2)
    assert model(torch.tensor([3, 4])).item() == pytest.approx(10.0)


def test_the_second_derivative_is_there_too(model):
    x = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda v: model(v).sum(), x)
    assert hessian[0, 0, 0, 0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "x",
    [
        [[1.0]],
        [[1, 2, 3]],
        [1, 2, 3],
        np.zeros((2, 2, 2)),
        5.0,
        [["a", "b"]],
        [[None, 1]],
        [[1, 2], [3]],
        np.array([[1j, 2]]),
        torch.zeros(2, 3),
        torch.zeros(()),
    ],
)
def test_points_that_do_not_fit_get_a_sentence(model, x):
    with pytest.raises(PointError, match=r"expected (rows of|numbers|real numbers)"):
        model(x)


def test_numbers_of_other_kinds_are_read(model):
    assert model([["3", "4"]]).tolist() == [10.0]
    assert model([[Fraction(3), Fraction(4)]]).tolist() == [10.0]


def test_properties(f2):
    assert f2.construction == "polynomial"
    assert (f2.layers, f2.heads, f2.most_heads, f2.tokens, f2.memory_tokens, f2.degree) == (5, 5, 1, 11, 0, 5)
    assert f2.parameter_count == 11 * 9 + 11 * 5 + 1
    assert f2.box.variables == tuple(f"x{k}" for k in range(1, 10))
    assert f2.formula.texts[0].startswith("x1**5 + 3*x2**4")
    claim = f2.certificate
    assert claim.approximation == 0 and claim.rounding > 0
    assert claim.bound == claim.eps == claim.rounding


def test_repr_says_what_it_is(f2, two):
    assert repr(f2).startswith("<transformula model: x1**5 + 3*x2**4")
    for part in ("polynomial, 5 layers, 5 heads, 11 tokens", "proven error <=", "float64", "..."):
        assert part in repr(f2)
    assert "x*y; x - y on x=-1..1, y=-1..1" in repr(two)


def test_exact_takes_and_gives_rationals(model):
    assert model.exact([fmpq(1, 3), fmpq(1, 2)]) == [fmpq(1, 9) + fmpq(1, 8)]


def test_verify_takes_models_and_folders(model, tmp_path):
    for given in (model, model.save(tmp_path / "m"), str(tmp_path / "m"), tf.load(tmp_path / "m")):
        result = tf.verify(given)
        assert result.verified and bool(result) and result.reasons == ()
        assert result.approximation == 0 and result.bound == result.rounding <= result.eps


def test_eps_is_kept_in_the_claim():
    model = tf.compile("x**2", on="x=-1..1", eps=1e-6)
    assert model.certificate.eps == 1e-6 and tf.verify(model).eps == 1e-6


def test_float32_stores_and_computes_in_float32():
    model = tf.compile("x**2/3", on="x=-1..1", dtype="float32")
    assert model([0.5]).dtype == np.float32
    assert model(torch.tensor([[0.5]], dtype=torch.float64)).dtype == torch.float32
    assert 1e-9 < model.certificate.rounding < 1e-4


def test_the_torch_module_is_the_model(f2):
    x = np.random.default_rng(0).uniform(-3, 3, size=(20, 9))
    module = f2.to_torch()
    assert np.allclose(module(torch.from_numpy(x)).detach()[:, 0], f2(x), rtol=1e-12, atol=1e-10)
    assert sum(p.numel() for p in module.parameters()) > 0


@pytest.mark.parametrize(
    "options",
    [
        {"eps": 0}, {"eps": -1.0}, {"eps": float("nan")}, {"eps": float("inf")}, {"eps": "1"},
        {"construction": "magic"}, {"dtype": "float16"}, {"dtype": None},
    ],
)  # fmt: skip
def test_bad_options_get_a_sentence(options):
    with pytest.raises(InputError, match=next(iter(options))):
        tf.compile("x", on="x=0..1", **options)


def test_names_win_over_constants_all_the_way():
    model = tf.compile("pi**2 + E", on="pi=0..1, E=0..1")
    assert model([0.5, 0.25]) == 0.5
    assert tf.verify(model).verified


def test_slots_may_be_named_like_variables():
    model = tf.compile("one*t*e1*p1", on="one=0..1, t=0..1, e1=0..1, p1=0..1")
    assert model([0.5, 0.5, 0.5, 0.5]) == pytest.approx(1 / 16)


def test_errors_are_one_family():
    from transformula import errors

    family = [getattr(errors, n) for n in dir(errors) if n.endswith("Error")]
    assert all(issubclass(e, errors.TransformulaError) for e in family)
    for name in ("FormulaError", "BoxError", "PointError", "ModelFileError"):
        assert issubclass(getattr(errors, name), errors.InputError)
        assert issubclass(getattr(errors, name), ValueError) and getattr(errors, name).exit_code == 2
    assert errors.NotProvenError.exit_code == 1


def test_the_public_names_are_there_and_no_others():
    assert set(tf.__all__) >= {"compile", "load", "verify", "Box", "Model"}
    assert all(getattr(tf, name) is not None for name in tf.__all__)
    assert set(tf.__all__) <= set(dir(tf))
    with pytest.raises(AttributeError, match="no_such"):
        tf.no_such  # noqa: B018


def test_importing_the_package_is_light():
    import subprocess
    import sys

    code = "import sys, transformula; sys.exit('torch' in sys.modules or 'sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_formulas_of_other_types_are_refused():
    with pytest.raises(FormulaError):
        tf.compile(3.5, on="x=0..1")


@pytest.mark.parametrize(("scale", "eps"), [("1", 1e-6), ("900", 1e-6), ("1e17", 1e10), ("1e-9", 1e-16)])
def test_the_usual_tolerance_fits_the_size_of_the_formula(scale, eps):
    model = tf.compile(f"{scale}*sin(x)", "x=0..1")
    assert model.certificate.eps == pytest.approx(eps) and model.certificate.bound <= eps
