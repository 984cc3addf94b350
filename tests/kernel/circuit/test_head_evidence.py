"""Evidence for heads and for the flow of errors: chunks do not matter, and short evidence is refused."""

import pytest

import transformula as tf
from transformula.errors import TransformulaError
from transformula.kernel.check import unpack
from transformula.kernel.circuit import carried_errors as carrying
from transformula.kernel.folder.description import EVIDENCE_FILE
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import parse_json
from transformula.kernel.rules.softmax_rule import prove_softmax

MODELS = {
    "lookup": ("sin(x) + cos(2*z) + exp(y)", "x=0..1, y=0..1, z=0..1", 1e-3),
    "circuit": ("exp(sin(x)*y)/(2 + cos(y)) + sin(x + y/3)", "x=0..1, y=0..2", 1e-3),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    formula, box, eps = MODELS[request.param]
    return tf.compile(formula, on=box, eps=eps, construction=request.param)


def proven(model, evidence=None):
    """Bounds from the stored evidence."""
    weights, description = unpack(model.packed)
    evidence = evidence or Evidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
    return prove_softmax(weights, model.formula, description.circuit, evidence)


def test_chunks_of_the_flow_do_not_change_a_bit(model, monkeypatch):
    whole = proven(model)
    monkeypatch.setattr(carrying, "_TOGETHER", 100)
    assert proven(model) == whole


@pytest.mark.parametrize(("item", "said"), [("pieces", "not seen to be defined"), ("slopes", "do not cover")])
def test_evidence_that_does_not_reach_is_refused(model, item, said):
    evidence = Evidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
    first = evidence.data["tables"][0]
    first[item] = [first[item][0], (first[item][0] + first[item][-1]) / 2]
    with pytest.raises(TransformulaError, match=said):
        proven(model, evidence)
