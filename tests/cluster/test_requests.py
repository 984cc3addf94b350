"""Tables are refused as a whole, in one sentence, before any work is done."""

import pytest

from transformula.cluster.batch_jobs import Request, read_requests
from transformula.errors import InputError

GOOD = {"name": "a", "formula": "x", "box": "x=0..1"}


def test_rows_become_requests_and_empty_cells_have_their_defaults():
    rows = [GOOD | {"eps": "", "dtype": " float32 "}, {"name": "b", "formula": "x", "on": "x=0..1", "rel": 0.5}]
    assert read_requests(rows) == [Request("a", "x", "x=0..1", dtype="float32"), Request("b", "x", "x=0..1", rel=0.5)]


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "a/b",
        "a\\b",
        "../a",
        "/a",
        "-a",
        ".hidden",
        "a.",
        "a ",
        "C:x",
        "a\0b",
        "a\nb",
        "x" * 101,
        "a*",
        "a|b",
    ],
)
def test_hostile_names_are_refused(name):
    wanted = "cannot be a folder name" if name != "a " else None
    if wanted is None:
        assert read_requests([GOOD | {"name": name}])[0].name == "a"  # the ends of a cell are trimmed
        return
    with pytest.raises(InputError, match=wanted):
        read_requests([GOOD | {"name": name}])


@pytest.mark.parametrize("name", ["CON", "nul.txt", "summary.csv", "Batch.jsonl"])
def test_names_that_are_taken(name):
    with pytest.raises(InputError, match="taken by something else"):
        read_requests([GOOD | {"name": name}])


@pytest.mark.parametrize("name", ["I.6.2b", "größe", "a-b_c", "f(x)", "1e-6", "x"])
def test_ordinary_names_are_taken(name):
    assert read_requests([GOOD | {"name": name}])[0].name == name


@pytest.mark.parametrize(
    ("second", "said"), [("a", "is given twice"), ("A", "is the same as 'a' on some"), ("ａ", "is the same as 'a'")]
)
def test_names_that_clash(second, said):
    with pytest.raises(InputError, match=f"^row 2: .*{said}"):
        read_requests([GOOD, GOOD | {"name": second}])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (GOOD | {"eps": "small"}, r"^row 1: eps is 'small', not a number above 0$"),
        (GOOD | {"eps": "-1"}, "eps is '-1'"),
        (GOOD | {"rel": "nan"}, "rel is 'nan'"),
        (GOOD | {"epsilon": "1"}, r"^row 1 has a column 'epsilon', which is not known: use name, formula, box"),
        (GOOD | {"formula": " "}, "formula is empty"),
        (GOOD | {"name": ""}, "name is empty"),
        ({"name": "a", "formula": "x"}, r"^row 1 has no column box \(it has name, formula\)$"),
        (GOOD | {"on": "x=0..2"}, "the columns box and on, which mean the same"),
    ],
)
def test_rows_that_cannot_be_read(row, said):
    with pytest.raises(InputError, match=said):
        read_requests([row])


def test_an_empty_table():
    with pytest.raises(InputError, match="no formula"):
        read_requests([])
