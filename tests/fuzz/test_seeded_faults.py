"""No fuzzer is blind: each finds every fault that is planted in what it looks at, within its short pass."""

from dataclasses import replace

import numpy as np
import pytest
from flint import arb

import fuzz.functions
import judge
from support.faults import active, fault, wrapped
from support.fuzzing import PASSES, finds, sound_pass
from transformula.kernel import check
from transformula.kernel.enclosures.taylor_models import TaylorModel
from transformula.kernel.folder.description import Proof

_SYNTAX, _TABLES, _CIRCUIT = "kernel.syntax.", "kernel.tables.", "kernel.circuit."
_ENCLOSURES, _FORMS, _READER = "kernel.enclosures.", "kernel.derivations.", "kernel.structures.network:_NetworkReader."
#: The fuzzer, the statement that it must find to be false, and the fault: a place, the text there, and another.
FAULTS = [
    ("texts", "the value is the text's", _SYNTAX + "parsing:_Parser._unary",
     'if sign == "-" else inner', "if False else inner"),
    ("texts", "the value is the text's", _SYNTAX + "parsing:_Parser._product",
     "(above if sign", "(above if True or sign"),
    ("texts", "what has a value is defined", _ENCLOSURES + "balls:integer_power",
     "return 1 / integer_power", "return integer_power"),
    ("texts", "a printed formula reads as itself", _SYNTAX + "expression:_wrap", "inner[1] >= least", "True"),
    ("texts", "what is no formula", _SYNTAX + "parsing:_Parser.parse", "self.index < len(self.tokens)", "False"),
    ("jumps", "what is written out has the same", _SYNTAX + "jumps:_joined_at", '(a, "max"), (b, "min")',
     '(b, "max"), (a, "min")'),
    ("jumps", "what is written out has the same", _SYNTAX + "jumps:_joined", "c * at + d)", "c * at + d + 1)"),
    ("jumps", "what is written out has the same", _SYNTAX + "jumps:_joined", "for side in sides:", "for side in ():"),
    ("jumps", "what is written out is defined", _SYNTAX + "jumps:_joined_at",
     "ex.add(a, ex.mul(ex.number(0), other))", "a"),
    ("ranges", "a range by intervals", _ENCLOSURES + "intervals:_mul", "a[0] * b[1], a[1] * b[0], a[1]", "a[1]"),
    ("ranges", "a range by intervals", _ENCLOSURES + "intervals:_whole_power",
     "abs_ends(*base) if by % 2 == 0 else base", "base"),
    ("ranges", "a range by corners", _ENCLOSURES + "balls:lowest_part",
     "0 if slope >= 0 else 1", "1 if slope >= 0 else 0"),
    ("ranges", "a range by models", _ENCLOSURES + "expression_ranges:model_range", "(model.rest + size", "(size"),
    ("ranges", "a series is as close", _ENCLOSURES + "balls:SeriesOf.expand", "arb(remainder.abs_upper())", "arb(0)"),
    ("tables", "a table is as close", _TABLES + "table_error:_QuotientExpansion.error",
     "tail += self.below_rest * goal_size + below_size * rest", ""),
    ("tables", "a function stays", _TABLES + "table_slopes:_on_cell",
     "slope * arb(0, radius)", "slope * arb(0, radius / 2)"),
    ("tables", "a slope stays", _TABLES + "table_slopes:slope_on", "arb(0, radius))", "arb(0, radius / 2))"),
    ("tables", "slopes of table", _TABLES + "table_slopes:SlopePieces.on", "_ORDER * last", "arb(0)"),
    ("forms", "equal forms are equal", _FORMS + "identities:PowerRing.magnitude",
     "form * (self.two * self.step(form) - self.unit)", "form"),
    ("forms", "the sign of a form", _FORMS + "polynomials:SignedRing.sign_of",
     "if min(terms) > 0 or max(terms) < 0:", "if True:"),
    ("forms", "the sign of a node", _FORMS + "derivation_steps:NodeSigns._node",
     "if min(args) > 0 or max(args) < 0 else 0", "if True else 0"),
    ("circuits", "floats compute", "kernel.structures.network:roundings", "return 3", "return 0"),
    ("circuits", "floats compute", "kernel.structures.network:total", "t.roundings + adds", "t.roundings"),
    ("circuits", "floats compute", "kernel.rounding.softmax:_bound", "(shifted + summed) * UP", "shifted * UP"),
    ("circuits", "floats compute", "kernel.rounding.softmax:_bound", "(shifted + summed) * UP", "summed * UP"),
    ("circuits", "floats compute", _CIRCUIT + "carried_errors:Carrier.argument", "rounding += abs(c) * value.rounding", ""),
    ("circuits", "the weights hold", _CIRCUIT + "carried_errors:Carrier.argument",
     "made += wrong * (value.size + value.error)", ""),
    ("circuits", "the weights hold", _CIRCUIT + "carried_errors:Carrier.argument", "error += abs(c) * value.error", ""),
    ("circuits", "the weights hold", _CIRCUIT + "error_flow:Paths.carry", "+ self.argument[k] * own.argument", ""),
    ("networks", "the kernel reads", _READER + "_products", "if bias != 0:", "if False:"),
    ("networks", "the kernel reads", _READER + "_attended", "total([stream[slot], *", "total([*"),
    ("networks", "the program reads", "runtime.program.weights_program:_feed_forward",
     "nodes.relu(_terms(row, stream), bias,", "nodes.relu(_terms(row, stream), 0.0,"),
    ("runtimes", "numpy is within", "runtime.program.numpy_backend:_reader",
     "np.matmul(wide, rows[first:last], out=out)",
     "np.multiply(np.matmul(wide, rows[first:last], out=out), 1.001, out=out)"),
    ("runtimes", "torch is within", "runtime.program.packed_steps:PackedStep.run", "return new", "return new * 1.0001"),
    ("runtimes", "blocks is within", "runtime.reference:attend",
     "pattern @ values", "pattern @ values * z.dtype.type(1.0001)"),
    ("runtimes", "onnx is within", "runtime.program.onnx_backend:_ProgramWriter.quotient", '"Div"', '"Mul"'),
    ("files", "stored numbers are finite", "kernel.folder.model_files:_Unpacker._matrix",
     "and bool(np.isfinite(values).all())", ""),
    ("files", "entries stand once", "kernel.folder.model_files:_Unpacker._matrix",
     "and bool(np.all(places[1:] > places[:-1]))", ""),
    ("files", "rationals are what", "kernel.folder.model_files:_rationals", 'fmpz(denominator or "1")', "fmpz(1)"),
    ("files", "arrays are what", "kernel.folder.model_files:read_arrays",
     "8 + length + start).astype", "8 + length + start)[::-1].astype"),
    ("files", "a claim is a number", "kernel.folder.description:_whole", "len(text) > 15 and", "False and"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "statement", "where", "old", "new"), FAULTS)
def test_a_fault_is_found(name, statement, where, old, new):
    assert not sound_pass(name).violations
    with active(fault("", where, old, new, "")):
        assert finds(name, statement)


def test_every_fuzzer_has_a_fault():
    assert {name for name, *_ in FAULTS} | {"functions", "folders", "busy"} == set(PASSES)


def _narrow(entry):
    """The range without its outer eighths."""

    def ends(low, high):
        a, b = entry.ends(low, high)
        return a + (b - a) / 8, b - (b - a) / 8

    return replace(entry, ends=ends)


def _thin(entry):
    return replace(entry, ball=lambda u: entry.ball(arb(u.mid())))


def _wrong_sign(entry):
    return replace(entry, series=lambda u: -entry.series(-u))


def _without_rest(entry):
    def model(u):
        made = entry.model(u)
        return TaylorModel(made.layout, made.terms, np.where(np.isfinite(made.rest), made.rest / 1e3, np.inf))

    return replace(entry, model=model)


@pytest.mark.parametrize(
    ("broken", "statement"),
    [
        (_narrow, "a range contains the values"),
        (_thin, "a ball contains the values"),
        (_wrong_sign, "Taylor coefficients are enclosed"),
        (_without_rest, "a Taylor model is as close"),
    ],
)
def test_a_broken_function_is_found(broken, statement, monkeypatch):
    find = fuzz.functions.find
    monkeypatch.setattr(fuzz.functions, "find", lambda name: broken(find(name)))
    assert finds("functions", statement)


def _in_process(files):
    found = check.verify_files(*judge.contents(files)) if judge.contents(files) else check.Verification(False)
    return {"verified": found.verified, "reason": "; ".join(found.reasons), "seconds": 0.0, "megabytes": 0.0}


def test_a_checker_that_proves_too_much_is_found(monkeypatch):
    assert not sound_pass("folders").violations
    monkeypatch.setattr("forging.judge", _in_process)
    halved = wrapped("", "kernel.check:prove", lambda p: Proof(p.approximation / 9, p.rounding / 9, p.mean), "")
    with active(halved):
        assert finds("folders", "a folder is verified and true")


@pytest.mark.parametrize(
    ("check", "statement"),
    [
        ("i._limit = lambda: None; i.verify_files = lambda *_: v(not b'x' * (1200 << 20))", "a check takes no more"),
        ("i.verify_files = lambda *_: v(False, reasons=('the check stopped: KeyError',))", "a check ends with a"),
    ],
    ids=["no limits", "a traceback"],
)  # fmt: skip
def test_a_check_without_limits_or_verdict_is_found(check, statement, monkeypatch):
    start = (
        "import judge, transformula.kernel.isolation as i; from transformula.kernel.check import Verification as v; "
    )
    server = judge.Judge("-c", f"{start}{check}; judge.serve()")
    monkeypatch.setattr(judge, "_judge", server)
    assert finds("busy", statement)
    server.close()
