"""Tampered inputs: none is accepted. The suite takes a share; `benchmarks/coq_tampering.py` takes all."""

import collections

import pytest

from support.coq_tampering import caught, tamperings

ALL = tamperings()
CHEAP = [t for t in ALL if not t.needs_coqc]


def test_there_are_more_than_300_of_every_kind():
    assert len(ALL) >= 300 and len(set(ALL)) == len(ALL)
    assert {t.what for t in ALL} >= {"weight", "index", "sign", "formula", "box", "bound", "derivation", "evidence"}
    assert collections.Counter(t.where for t in ALL).keys() >= {"folder", "export", "Model.v", "folder and Model.v"}


@pytest.mark.parametrize("tampering", CHEAP[::7], ids=lambda t: f"{t.where}-{t.what}-{t.case}-{t.seed}")
def test_a_tampered_input_is_refused(tampering, tmp_path):
    assert caught(tampering, tmp_path) != "accepted"
