"""Heads and the flow of errors on other processes: the same proof to the last bit, and the same work."""

import pickle

import pytest

import transformula as tf
from transformula.errors import TransformulaError
from transformula.kernel.check import unpack
from transformula.kernel.circuit import carried_errors as carrying
from transformula.kernel.folder.description import EVIDENCE_FILE
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import parse_json
from transformula.kernel.parts import helped
from transformula.kernel.rules.softmax_rule import prove_softmax
from transformula.kernel.work import limited

MODELS = {
    "lookup": ("sin(x) + cos(2*z) + exp(y)", "x=0..1, y=0..1, z=0..1", 1e-3),
    "circuit": ("exp(sin(x)*y)/(2 + cos(y)) + sin(x + y/3)", "x=0..1, y=0..2", 1e-3),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    formula, box, eps = MODELS[request.param]
    return tf.compile(formula, on=box, eps=eps, construction=request.param)


class Elsewhere:
    """A helper that has nothing in common with whoever asks, as another process; counts the parts of each kind."""

    def __init__(self, spoil=lambda answer: answer):
        self.spoil, self.seen = spoil, {}

    def __call__(self, function, parts):
        function = pickle.loads(pickle.dumps(function))
        kind = getattr(function.args[0], "func", function.args[0]).__name__
        self.seen[kind] = self.seen.get(kind, 0) + len(parts)
        try:
            answers = [function(pickle.loads(pickle.dumps(part))) for part in parts]
        except TransformulaError:
            return None
        return [self.spoil(one) for one in pickle.loads(pickle.dumps(answers))]


def proven(model, evidence=None):
    """Bounds, counts and the work they took, from what is stored."""
    weights, description = unpack(model.packed)
    evidence = evidence or Evidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
    with limited() as meter:
        proof = prove_softmax(weights, model.formula, description.circuit, evidence)
    return proof, meter[0]


def test_heads_and_flow_elsewhere_give_the_same_bits_for_the_same_work(model, monkeypatch):
    monkeypatch.setattr(carrying, "_TOGETHER", 100)
    alone, helper = proven(model), Elsewhere()
    with helped(helper):
        assert proven(model) == alone
    assert helper.seen["_all"] >= 3, "heads"
    assert (helper.seen.get("_carried", 0) > 2) == (model.construction == "circuit"), "parts of the box"


@pytest.mark.parametrize("spoil", [lambda a: None, lambda a: (a[0][:-1], a[1]), lambda a: ([None] * 9, a[1])])
def test_what_is_no_answer_is_found_here(model, spoil):
    alone = proven(model)
    with helped(Elsewhere(spoil)):
        assert proven(model) == alone


def test_chunks_of_the_flow_do_not_change_a_bit(model, monkeypatch):
    whole = proven(model)[0]
    monkeypatch.setattr(carrying, "_TOGETHER", 100)
    assert proven(model)[0] == whole


@pytest.mark.parametrize(("item", "said"), [("pieces", "not seen to be defined"), ("slopes", "do not cover")])
def test_evidence_that_does_not_reach_is_refused_in_the_same_words(model, item, said):
    evidence = Evidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
    first = evidence.data["tables"][0]
    first[item] = [first[item][0], (first[item][0] + first[item][-1]) / 2]
    for helper in (Elsewhere(), lambda function, parts: None):
        with helped(helper), pytest.raises(TransformulaError, match=said):
            proven(model, evidence)
