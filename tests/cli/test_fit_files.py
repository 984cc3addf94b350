"""``fit`` on several files, CSV and Parquet: one table, whatever its files and chunks; what is wrong is named."""

import json

import numpy as np
import pytest

from transformula import optional
from transformula.cluster import table_parts as parts
from transformula.learn import states

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(600, 3))
PRICE = 3 + 2 * X[:, 0] * X[:, 1] + X[:, 2] ** 2 + rng.normal(size=600)
NAMES = ["size", "rooms", "age", "price"]
TABLE = np.column_stack([X, PRICE])


def write_csv(path, rows=TABLE, names=NAMES, mark=","):
    lines = [mark.join(names), *(mark.join(map(repr, row)) for row in rows.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path, rows=TABLE, names=NAMES, group=100, **more):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({**dict(zip(names, rows.T, strict=True)), **more}), path, row_group_size=group)
    return path


def fitted(cli, data, *more):
    done = cli("fit", str(data), "--target", "price", "--degree", "2", "--json", *more)
    assert done.code == 0, done.err
    return {k: v for k, v in json.loads(done.out).items() if k != "seconds"}


def refused(cli, data, *more):
    done = cli("fit", str(data), "--target", "price", *more)
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1, done.err
    return done.err


@pytest.fixture(params=["in memory", "in parts"])
def either_way(request, monkeypatch):
    """Tables of 600 rows, small or large."""
    if request.param == "in parts":
        monkeypatch.setattr(states, "_LEAST_SAMPLE", 150)
        monkeypatch.setattr(states, "_MOST_SAMPLE", 150)
        monkeypatch.setattr(parts, "_CHUNK_NUMBERS", 256)
        monkeypatch.setattr(parts, "_LEAST_ROWS", 1)
    return request.param


def _close(one, other):
    """The same numbers, to the last digits."""
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            _close(value, other[key])
        elif isinstance(value, float):
            assert value == pytest.approx(other[key], rel=1e-9)
        else:
            assert value == other[key]


@pytest.mark.parametrize("solver", ["exact", "sparse", "lowrank"])
def test_files_chunks_and_formats_do_not_matter(cli, tmp_path, either_way, solver):
    one = fitted(cli, write_csv(tmp_path / "all.csv"), "--solver", solver)
    assert one["in_parts"] is (either_way == "in parts") and one["rows"] + one["held_out_rows"] == 600
    assert one["r2_held_out"] > 0.99
    (tmp_path / "csv").mkdir()
    order = rng.permutation(600)
    for k, rows in enumerate(np.split(order, [10, 350])):
        swapped = [1, 0, 3, 2] if k == 1 else [0, 1, 2, 3]  # columns may stand in another order
        write_csv(tmp_path / "csv" / f"{k}.csv", TABLE[rows][:, swapped], [NAMES[c] for c in swapped], mark=";\t,"[k])
    _close(fitted(cli, tmp_path / "csv", "--solver", solver), one)
    _close(fitted(cli, write_parquet(tmp_path / "a.parquet"), "--solver", solver), one)
    write_parquet(tmp_path / "b.parquet", TABLE[:1])
    write_parquet(tmp_path / "a.parquet", TABLE[1:])
    _close(fitted(cli, tmp_path / "[ab].parquet", "--solver", solver), one)


def test_a_table_in_parts_is_saved_and_evaluated(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(states, "_LEAST_SAMPLE", 150)
    monkeypatch.setattr(states, "_MOST_SAMPLE", 150)
    source = write_csv(tmp_path / "t.csv")
    facts = fitted(cli, source, "--out", str(tmp_path / "m"), "--solver", "sparse")
    assert facts["in_parts"] and "size*rooms" in facts["formula"]
    assert len(json.loads((tmp_path / "m" / "fit.json").read_text())["report"]["points"]) > 10
    assert "read in parts" in " ".join(cli("fit", str(source), "--target", "price", "--degree", "2").out.split())
    done = cli("eval", str(tmp_path / "m"), "--csv", str(source), "--out", str(tmp_path / "o.csv"))
    assert done.code == 0, done.err
    assert cli("verify", str(tmp_path / "m")).code == 0


def test_files_that_do_not_belong_together_are_named(cli, tmp_path):
    (tmp_path / "d").mkdir()
    write_csv(tmp_path / "d" / "1.csv")
    other = write_csv(tmp_path / "d" / "2.csv", names=["size", "rooms", "years", "price"])
    said = refused(cli, tmp_path / "d")
    assert f"{other} has no column age, but {tmp_path}/d/1.csv has: all files need the same columns" in said
    write_csv(other, np.column_stack([TABLE, X[:, 0]]), [*NAMES, "garden"])
    assert f"1.csv has no column garden, but {other} has" in refused(cli, tmp_path / "d")
    assert fitted(cli, tmp_path / "d" / "1.csv", "--test", "0")["rows"] == 600
    write_csv(other, TABLE[:, :3], NAMES[:3])
    assert f"{other} has no column price (it has size, rooms, age)" in refused(cli, tmp_path / "d")
    write_csv(other).write_text(other.read_text().replace(repr(float(PRICE[7])), "two"))
    assert "'price' has texts such as 'two'" in refused(cli, tmp_path / "d", "--task", "regression")


def test_parquet_files_with_text_and_gaps_are_read(cli, tmp_path):
    pytest.importorskip("pyarrow")
    path = write_parquet(tmp_path / "t.parquet", town=["Ulm", "Rom", None] * 200)
    facts = fitted(cli, path)
    assert "town: category (3 levels; 166 empty cells are a level of their own)" in facts["preparation"]
    assert facts["r2_held_out"] > 0.99
    assert fitted(cli, path, "--drop", "town")["r2_held_out"] > 0.99
    write_parquet(path, garden=[1, *[None] * 598, 2], yard=[1.0] * 250 + [float("inf")] + [2.0] * 349)
    said = fitted(cli, path)["preparation"]
    assert said[3].startswith("garden: ") and "yard: number (1 empty cell becomes the median, 2)" in said
    path.write_bytes(b"PAR1 nothing")
    assert f"cannot read {path}: " in refused(cli, path)
    write_parquet(path, TABLE[:0])
    assert refused(cli, path) == "error: the table has no rows: at least 2 are needed to fit\n"


def test_what_is_out_of_the_ordinary_is_read_too(cli, tmp_path, monkeypatch):
    """The fast reader of numbers hands over in mid-file, and lines keep their numbers."""
    monkeypatch.setattr(parts, "_CHUNK_NUMBERS", 256)
    monkeypatch.setattr(parts, "_LEAST_ROWS", 1)
    path = write_csv(tmp_path / "t.csv")
    one, lines = fitted(cli, path), path.read_text().splitlines()
    first = lines[500].split(",")[0]
    lines[500] = lines[500].replace(first, f'" {first} "', 1)
    lines[510] += " "
    path.write_text("\n".join(lines))
    _close(fitted(cli, path), one)
    lines[300] = "1_0," + lines[300].split(",", 1)[1]  # a number to Python
    path.write_text("\n".join(lines))
    assert fitted(cli, path)["rows"] == 480
    for number, line, said in [(520, "", "the line is blank"), (521, lines[521] + ",1", "5 values for 4 columns")]:
        path.write_text("\n".join([*lines[:number], line, *lines[number + 1 :]]))
        assert refused(cli, path) == f"error: {path}, line {number + 1}: {said}\n"
    path.write_bytes("\n".join(lines).encode() + b"\n1,2,3,\xff")
    assert refused(cli, path) == f"error: {path} is not a text file in UTF-8: save it as UTF-8\n"


def test_patterns_and_folders_without_files(cli, tmp_path):
    assert "no file matches" in refused(cli, tmp_path / "*.csv")
    assert "has no files that end with .parquet, .pq, .csv, .tsv" in refused(cli, tmp_path)
    assert "there is no file" in refused(cli, tmp_path / "t.csv")


def test_parquet_and_clusters_name_their_extra(cli, tmp_path, monkeypatch):
    source = write_csv(tmp_path / "t.csv")
    (tmp_path / "t.parquet").write_bytes(b"")
    find = optional.find_spec
    monkeypatch.setattr(optional, "find_spec", lambda name: None if name in ("pyarrow", "distributed") else find(name))
    assert "pip install 'transformula[parquet]'" in refused(cli, tmp_path / "t.parquet")
    assert "pip install 'transformula[dask]'" in refused(cli, source, "--scheduler", "tcp://127.0.0.1:8786")
    assert fitted(cli, source)["r2_held_out"] > 0.99


def test_workers_that_cannot_be(cli, tmp_path):
    source = write_csv(tmp_path / "t.csv")
    assert "the number of jobs must be" in refused(cli, source, "--jobs", "0")


def test_an_index_without_a_name_and_blank_lines_at_the_end(cli, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([",x,price,", *(f"{k},{k % 7},{2 * (k % 7)}," for k in range(50)), "", "", ""]))
    facts = fitted(cli, path)
    assert facts["preparation"][0] == '"column 1": number' and facts["formula"] == "2*x"
    assert facts["preparation"][2] == '"column 4": left out (every cell is empty)'
