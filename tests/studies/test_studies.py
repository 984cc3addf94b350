"""Every study runs at its quick size and says what it should."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import transformula as tf
from transformula.cli.app import app
from transformula.errors import InputError
from transformula.studies import STUDIES, prune_study, run_study
from transformula.studies.study_report import Report, StudyRun, StudyTable

DOCS = Path(__file__).parents[2] / "docs" / "studies"

runner = CliRunner()


@pytest.fixture(scope="module")
def reports():
    cache = {}

    def get(name):
        if name not in cache:
            cache[name] = run_study(name, seed=0, size="quick")
        return cache[name]

    return get


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_writes_its_numbers_figure_and_page(name, reports, tmp_path):
    report = reports(name)
    paths = {p.suffix: p for p in report.save(tmp_path)}
    facts = json.loads(paths[".json"].read_text())
    assert facts["study"] == name and facts["seed"] == 0 and facts["tables"]
    assert paths[".png"].read_bytes().startswith(b"\x89PNG")
    html = paths[".html"].read_text()
    assert html.startswith("<!doctype html>") and "data:image/png;base64," in html and "http" not in html
    page = paths[".md"].read_text().replace(r"\*", "*")
    assert all(sentence in page for sentence in report.findings)
    assert f"transformula reproduce {name}" in page
    {
        "fang-f1": _fang_f1,
        "fang-f2": _fang_f2,
        "fang-closed-form": _fang_closed_form,
        "existence-vs-training": _existence,
        "memorization": _memorization,
        "sorting": _sorting,
        "rates": _rates,
        "distillation": _distillation,
        "sine-sum": _sine_sum,
        "attention-only": _attention_only,
        "local-polynomials": _local_polynomials,
        "in-context": _in_context,
        "compact-memory": _compact_memory,
        "yun": _yun,
        "linear-attention": _linear_attention,
        "prune": _prune,
        "coupling-rank": _coupling_rank,
    }[name](report)


def _attention_only(report):
    assert all(abs(slope * d + 1) < 0.3 for d, slope in report.facts["slopes"].items())
    assert all(soft < nearest / 5 for _, soft, nearest in report.facts["lines"])


def _local_polynomials(report):
    assert len(report.facts["fits"]) >= 3
    assert all(abs(slope / theory - 1) < 0.15 for _, _, slope, theory in report.facts["fits"])


def _compact_memory(report):
    assert all(exact and small < plain for _, small, _, _, exact, plain in report.facts["rows"][1:])


def _yun(report):
    facts = report.facts
    contexts = [row[2] for row in facts["rows"]]
    assert contexts == sorted(contexts) and -2.6 < facts["slope"] < -1.6  # in two variables: eps**-2
    assert all(row[5] <= row[0] < row[6] for row in facts["rows"])  # the mean, and the error outside the seams
    for eps, n, contexts, wide, narrow, formula, bounds in facts["layouts"]:
        assert wide < narrow == formula and all(0 < bound <= eps for bound in bounds), (n, contexts)
    assert all(row[1] == 2 and row[3] == 0 for row in facts["fang"] if row[0] == "x*y")


def _linear_attention(report):
    exact = [row for row in report.facts["rows"] if row[:2] == ["least squares", 0.0]]
    assert all(found == planted and error < 1e-10 for _, _, planted, found, error, _, _ in exact)
    assert all(0 < row[5] < 1e-7 for row in exact)
    noisy = [row[4] for row in report.facts["rows"] if row[1] > 0 and row[0] == "least squares"]
    assert all(1e-3 < error < 0.1 for error in noisy)


def _prune(report):
    for rows in (report.facts["sparse"], report.facts["low_rank"]):
        bounds = [row[3] for row in rows]
        assert bounds == sorted(bounds, reverse=True) and bounds[-1] < 1e-5
        assert [row[2] for row in rows] == sorted(row[2] for row in rows)
    whole, *fewer = report.facts["tokens"]
    assert whole[2] <= 2e-6 and all(solved <= kept for _, _, kept, solved in fewer)


def _coupling_rank(report):
    for rows in report.facts["rows"].values():
        assert all(measured <= bound for _, _, bound, measured in rows)
        assert [row[3] for row in rows] == sorted((row[3] for row in rows), reverse=True)
    powers = [float(measured.removeprefix("m^-")) for *_, measured in report.facts["slopes"]]
    assert 1.3 < powers[0] < 2 < powers[1] and powers[1] > 3
    for _, dimension, parameters, certificate, bound, measured in report.facts["built"]:
        assert parameters < 200 * dimension and certificate < 1e-12 < measured <= bound


def _in_context(report):
    assert all(measured <= proven for *_, measured, proven in report.facts["rows"])
    assert report.facts["rows"][-1][4] <= 1e-6 < report.facts["rows"][-1][1]
    assert all(row[2] < row[4] for row in report.facts["sizes"])
    assert [row[2] for row in report.facts["loops"]] == [report.facts["loops"][0][1]] * len(report.facts["loops"])
    assert all(measured <= proven < 1e-10 for *_, measured, proven in report.facts["growth"])


def _fang_f1(report):
    errors = report.facts["test_mse"]
    assert max(errors["attention"]) <= 0.02
    assert max(errors["closed form, exact"] + errors["closed form, sparse"]) <= 0.002
    assert min(errors["NN_depth"] + errors["NN_width"]) > 50


def _fang_f2(report):
    attention, depth, width = report.tables[0].rows
    assert attention[4] < 0.1 * depth[4] and attention[4] < 0.1 * width[4]


def _fang_closed_form(report):
    assert report.facts["seven_terms"]


def _existence(report):
    assert min(report.facts["gaps"]) > 3


def _memorization(report):
    assert all(r[3] <= r[4] <= 1e-6 for r in report.facts["rows"] if r[1] == "memorised")


def _sorting(report):
    built = [r for r in report.facts["rows"] if r[0] != "trained"]
    assert all(r[4] <= r[5] for r in built)


def _rates(report):
    slopes = report.facts["partition_slopes"]
    assert np.allclose([slopes[1], slopes[2], slopes[3]], [-1, -0.5, -1 / 3], atol=0.12)
    assert max(report.facts["lookup_decay"].values()) < -0.5


def _distillation(report):
    students = report.facts["students"]
    assert students[-1][2] < students[0][2]


def _sine_sum(report):
    assert report.facts["proven"] <= 1e-6
    assert report.facts["rows"][-1][4] <= report.facts["proven"]


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.json")), ids=lambda path: path.stem)
def test_a_study_fits_a_terminal(path, capsys, monkeypatch):
    """The tables of the docs, printed: at most 80 columns, and no number cut."""
    monkeypatch.setenv("COLUMNS", "80")
    kept = json.loads(path.read_text(encoding="utf-8"))
    tables = [StudyTable(**table) for table in kept["tables"]]
    Report(StudyRun(kept["study"]), kept["title"], "", kept["setting"], tables, kept["findings"], {}).print()
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80 and "…" not in printed
    assert all(table.title in printed.replace("\n", " ") for table in tables)


def test_the_command_lists_and_refuses():
    listed = runner.invoke(app, ["reproduce", "--list", "--json"])
    assert set(json.loads(listed.stdout)) == set(STUDIES)
    for arguments in (["nothing"], ["rates", "--quick", "--full"]):
        assert isinstance(runner.invoke(app, ["reproduce", *arguments]).exception, InputError)


def test_the_command_writes_a_folder(tmp_path):
    done = runner.invoke(app, ["reproduce", "in-context", "--quick", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["size"] == "quick" and len(facts["files"]) == 4


def test_a_bar_in_a_name_is_no_column():
    table = StudyTable("t", ["|a|", "b"], [["|x|", 1.0]])
    assert table.markdown().splitlines()[2:] == [r"| \|a\| | b |", "| --- | --- |", r"| \|x\| | 1 |"]


def test_a_pruned_model_is_verified_from_its_folder_and_attacked(tmp_path):
    """Half of the directions of a quadratic form: the bound is proven again, and holds where it is attacked."""
    matrix = prune_study._matrix(4, seed=1)
    model = prune_study._low_rank(matrix, prune_study._quadratic(matrix), 2)
    assert tf.verify(model.save(tmp_path / "pruned")).verified and model.tokens == 2
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    points = np.concatenate([corners, np.random.default_rng(0).uniform(-1, 1, (500, 4))])
    error = np.abs(model(points) - np.einsum("ri,ij,rj->r", points, matrix, points)).max()
    assert 1e-3 < error <= model.certificate.bound < 3 * error
