import base64
import io
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import transformula as tf
from transformula.coq.coq_files import coq_files
from transformula.errors import InputError, ModelFileError
from transformula.kernel.arithmetic import at_most
from transformula.kernel.check import Verification
from transformula.kernel.folder.description import Certificate
from transformula.show.card import card
from transformula.show.circuit_view import Item
from transformula.show.drawings import MAX_OUTPUTS
from transformula.show.page_parts import page
from transformula.show.report_page import report_page, write_report

F2 = "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9"


def _samples():
    rng = np.random.default_rng(0)
    return tf.memorize(rng.normal(size=(70, 2)), rng.normal(size=(70, 2)))


MODELS = {
    "polynomial": lambda: tf.compile(F2, on="x1..x9=-3..3"),
    "multi-head": lambda: tf.compile("x**5*y - 1/3", on="x=-1..2, y=0..1", multi_head=True, dtype="float32"),
    "approximation": lambda: tf.compile("exp(x)", on="x=0..1", eps=1e-6, construction="polynomial"),
    "constant": lambda: tf.compile("x - x + 2/3", on="x=0..1"),
    "lookup": lambda: tf.compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=1e-5),
    "float32": lambda: tf.compile("sin(x) + abs(x - 1)", on="x=0..3", eps=1e-2, dtype="float32"),
    "partition": lambda: tf.compile("sin(x*y)", on="x=0..2, y=0..2", eps=0.1, construction="partition"),
    "cells": lambda: tf.compile("cos(x)", on="x=0..6", eps=1e-3, construction="partition"),
    "circuit": lambda: tf.compile(
        "exp(-x*y)*sin(z + x)", on="x=0..1, y=0..1, z=0..1", eps=1e-3, construction="circuit"
    ),
    "sequence": lambda: tf.compile(["min(a, b)", "max(a, b) + exp(a)"], "a=0..1, b=0..1", 1e-3, shape=(2, 1)),
    "layers": lambda: tf.compile("x*exp(-y)", on="x=-1..1, y=0..1", eps=0.3, construction="local-polynomials"),
    "memorize": _samples,
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """shelf(name) is a saved model's folder and its page, made once."""
    root, made = tmp_path_factory.mktemp("report"), {}

    def get(name):
        if name not in made:
            folder = MODELS[name]().save(root / name)
            made[name] = folder, write_report(folder)
        return made[name]

    return get


class Page(HTMLParser):
    """Collects what the tests ask about; void elements and everything open must be balanced."""

    VOID = ("meta", "input", "img", "br", "use")

    def __init__(self, text):
        super().__init__()
        self.text, self.claims, self.links, self.ids, self.open = text, {}, [], [], []
        self.words, self.elements, self.policy, self.verified = [], [], "", None
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if "data-claim" in found:
            self.claims[found["data-claim"]] = float(found["value"])
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        self.verified = found.get("data-verified", self.verified)
        self.links += [v for k, v in found.items() if k.split(":")[-1] in ("src", "href", "srcset", "action")]
        self.ids += [found["id"]] if "id" in found else []
        assert not any(name.startswith("on") for name in found), found

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("name", MODELS)
def test_page_and_card(shelf, name):
    """One test for all that every page has to be, so that each model is compiled and drawn once."""
    folder, written = shelf(name)
    text = written.page.read_text(encoding="utf-8")
    _states_the_certificate_digit_by_digit(folder, Page(text))
    _needs_nothing_but_itself(text)
    _card_shows_formula_bound_and_plot(tf.load(folder))


def _states_the_certificate_digit_by_digit(folder, seen):
    certificate = json.loads((folder / "certificate.json").read_text())
    stated = {key: certificate[key] for key in ("approximation", "rounding", "eps")}
    assert seen.claims == stated | {"bound": tf.load(folder).certificate.bound}
    words = "".join(seen.words)
    assert all(repr(value) in words for value in stated.values())
    assert all(certificate[f"{file}_sha256"] in words for file in ("weights", "model", "evidence"))
    assert certificate["dtype"] in words and seen.verified == "yes"


def _needs_nothing_but_itself(text):
    seen = Page(text)
    assert all(link.startswith(("data:image/png", "data:application/zip", "#")) for link in seen.links)
    outside = re.findall(r"url\((?!#)[^)]*\)|@import|https?:", text)
    assert not outside
    assert "default-src 'none'" in seen.policy and "script-src 'sha256-" in seen.policy
    assert seen.elements.count("script") == 2 and "iframe" not in seen.elements
    assert len(seen.ids) == len(set(seen.ids)), "one id, one thing"
    assert len(text) < 1_500_000


def test_sections_by_construction(shelf):
    words = {name: "".join(Page(shelf(name)[1].page.read_text()).words) for name in MODELS}
    assert "degree 5" in words["polynomial"] and "Size against Fang" in words["polynomial"]
    assert "sin(x1)" in words["lookup"] and "score slopes" in words["lookup"]
    assert "70 memorised samples" in words["memorize"] and "at every sample" in words["memorize"]
    assert "stands for" in words["circuit"] and "The error of every table was bounded" in words["circuit"]
    assert "2 positions" in words["sequence"] and "asked by position 0" in words["sequence"]
    assert "cells" in words["partition"] and "tokens, of which" in words["cells"]
    assert "zero, not small" in words["polynomial"] and "zero, not small" not in words["approximation"]


def test_what_was_rounded_away_from_zero_is_shown_as_zero():
    """Ranges are rounded outwards: an exact 0 may become a subnormal number."""
    ends = [(1.482e-323, 4.0), (-0.0, 1.0), (-2.0, 5e-324), (1e-9, 1.0), (5e-324, 1e-323)]
    shown = [Item("w", "ReLU", 2, "ReLU(u)", "x", ("x",), "x", pair).range for pair in ends]
    assert shown == ["0..4", "0..1", "-2..0", "1e-09..1", "4.941e-324..9.881e-324"]


def test_slider_data_is_attention(shelf):
    text = shelf("lookup")[1].page.read_text()
    heads = json.loads(re.search(r'id="attention">(.*?)</script>', text, re.DOTALL)[1])
    assert len(heads) == 2 and heads[1]["variable"] == "x2" and len(heads[0]["axis"]) == 41
    for head in heads:
        np.testing.assert_allclose(np.sum(head["weights"], axis=1), 1, atol=1e-3)
        assert len(head["tokens"]) == len(head["weights"][0])


def test_many_outputs_are_cut_and_counted():
    model = tf.compile([f"x*y + {k}" for k in range(9)], on="x=0..1, y=0..1")
    words = "".join(Page(report_page(model)).words)
    assert f"and {9 - MAX_OUTPUTS} further outputs" in words and "3 further outputs are not drawn" in words


def test_hostile_text_is_escaped(shelf):
    folder, _ = shelf("constant")
    model = tf.load(folder)
    attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    body = json.loads(model.certificate.to_json())
    body.pop("digest")
    body["rounding_model"] = {attack: attack, "list": [attack]}
    object.__setattr__(model, "certificate", Certificate(**body))
    failed = Verification(False, reasons=(attack,))
    seen = Page(report_page(model, attack, failed))
    assert seen.elements.count("script") == 2 and "img" not in seen.elements and seen.verified == "no"


def test_data_cannot_end_its_element():
    text = page("title", "", {"a": "</script><script>alert(1)</script>"})
    assert text.count("<script") == 2 and json.loads(re.search(r'id="attention">(.*?)</', text)[1])


def test_a_reported_folder_can_be_compiled_into_again(tmp_path):
    model = MODELS["constant"]()
    write_report(model.save(tmp_path / "again"))
    assert not (model.save(tmp_path / "again") / "report.html").exists(), "a report goes with its model"


def test_a_folder_that_does_not_verify_says_so(tmp_path):
    folder = MODELS["lookup"]().save(tmp_path / "edited")
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate.pop("digest")
    certificate["approximation"] /= 1e3
    (folder / "certificate.json").write_text(Certificate(**certificate).to_json())
    written = write_report(folder)
    seen = Page(written.page.read_text())
    assert not written.verification.verified and seen.verified == "no"
    assert "does NOT verify" in "".join(seen.words) and seen.claims["approximation"] == certificate["approximation"]

    (folder / "model.safetensors").write_bytes(b"other")
    refused = write_report(folder, tmp_path / "refused.html")
    assert Page(refused.page.read_text()).verified == "no"
    with pytest.raises(ModelFileError):
        write_report(folder, verify=False)


@pytest.mark.parametrize("form, start", [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plots_are_files(shelf, tmp_path, form, start):
    folder, _ = shelf("lookup")
    written = write_report(folder, tmp_path / "page.html", tmp_path / "plots", form, verify=False)
    assert {p.stem for p in written.plots} >= {"curve", "error", "attention_block0_head0"}
    assert all(p.read_bytes().startswith(start) for p in written.plots)
    assert Page(written.page.read_text()).verified == "unknown"
    assert {p.suffix for p in tmp_path.rglob("*") if p.is_file()} == {".html", f".{form}"}


def test_bad_places_are_refused(shelf, tmp_path):
    folder, _ = shelf("constant")
    with pytest.raises(InputError, match="cannot write"):
        write_report(folder, folder / "model.json" / "page.html")
    with pytest.raises(InputError, match="png or svg"):
        write_report(folder, form="gif")
    with pytest.raises(ModelFileError):
        write_report(tmp_path / "nothing")


def _card_shows_formula_bound_and_plot(model):
    shown = model._repr_html_()
    assert shown == card(model)
    assert at_most(model.certificate.bound) in shown and '<svg class="plot"' in shown
    assert "<script" not in shown and "http" not in shown
    Page(shown)


def test_card_survives_a_plot_that_fails(shelf, monkeypatch):
    model = tf.load(shelf("lookup")[0])
    monkeypatch.setattr("transformula.show.card._plot", lambda _: 1 / 0)
    assert "<math" in card(model) and "<svg" not in card(model)


def test_verb(shelf, tmp_path, monkeypatch, capfd):
    from transformula.cli import main

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["transformula", *map(str, arguments)])
        capfd.readouterr()
        try:
            main()
        except SystemExit as end:
            return end.code or 0, capfd.readouterr().out
        return 0, capfd.readouterr().out

    folder, _ = shelf("constant")
    place = tmp_path / "page.html"
    code, out = run("report", folder, "--out", place, "--plots", tmp_path / "plots", "--format", "svg", "--json")
    facts = json.loads(out)
    assert code == 0 and facts["verified"] is True and Path(facts["page"]) == place
    assert facts["plots"] and all(Path(p).suffix == ".svg" for p in facts["plots"])
    code, out = run("report", folder, "--out", place, "--no-verify", "--json")
    assert code == 0 and json.loads(out)["verified"] is None
    copy = tf.load(folder).save(tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(b"edited")
    code, out = run("report", copy, "--json")
    assert code == 1 and json.loads(out)["reasons"]
    assert run("report", tmp_path / "nothing")[0] == 2


@pytest.mark.parametrize("width, scheme", [(1200, "light"), (390, "dark")])
def test_page_in_a_browser(shelf, browser, width, scheme):
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    complaints, requests = [], []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(shelf("lookup")[1].page.as_uri())
    before = tab.eval_on_selector_all(".bars i", "bars => bars.map(b => b.style.height)")
    tab.eval_on_selector("[data-head='0'] input", "i => { i.value = 0; i.dispatchEvent(new Event('input')); }")
    after = tab.eval_on_selector_all(".bars i", "bars => bars.map(b => b.style.height)")
    assert before and len(before) == len(after) and before != after
    assert tab.text_content("[data-head='0'] output") == "x1 = 0"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    pixels = tab.evaluate("[...document.querySelectorAll('svg.plot')].map(s => s.getBoundingClientRect().width)")
    assert pixels and min(pixels) > 250
    assert tab.evaluate("document.querySelector('math msub').getBoundingClientRect().width") > 5
    picture = tab.screenshot()
    assert len(picture) > 20_000
    context.close()
    assert not complaints and all(url.startswith(("file:", "data:")) for url in requests)


def test_a_circuit_of_many_heads_is_at_most_six_screens(browser, tmp_path):
    """Whatever is longer stands in folds, on a phone too."""
    price = (
        "S*(1 + erf((log(S/K) + (r + s**2/2)*T)/(s*sqrt(2*T))))/2"
        " - K*exp(-r*T)*(1 + erf((log(S/K) + (r - s**2/2)*T)/(s*sqrt(2*T))))/2"
    )
    model = tf.compile(price, on="S=80..120, K=90..110, r=0.01..0.05, s=0.2..0.4, T=0.5..1", eps=1e-2)
    assert model.heads >= 20
    page = write_report(model.save(tmp_path / "model")).page
    for width, height in ((1280, 900), (390, 844)):
        tab = browser.new_page(viewport={"width": width, "height": height})
        tab.goto(page.as_uri())
        tall, wide = tab.evaluate("[document.documentElement.scrollHeight, document.documentElement.scrollWidth]")
        assert tall <= 6 * height and wide <= width
        assert tab.locator("summary", has_text="more heads").is_visible()
        tab.close()


def test_cards_of_everything_else_in_a_notebook(shelf):
    formatters = {}
    shell = SimpleNamespace(
        display_formatter=SimpleNamespace(formatters={"text/html": SimpleNamespace(for_type=formatters.__setitem__)})
    )
    tf.load_ipython_extension(shell)
    folder, _ = shelf("circuit")
    model = tf.load(folder)
    shown = [model.certificate, tf.verify(folder), model.circuit, model.trace([[0.5, 0.5, 0.5]])]
    words = ["approximation", "Verified", "u**2", "block 0, head 0"]
    for value, word in zip(shown, words, strict=True):
        text = formatters[type(value)](value)
        assert word in text and "<script" not in text
        Page(text)
    broken = Verification(False, reasons=("the <b>weights</b> differ",))
    assert "Does NOT verify" in formatters[Verification](broken) and "&lt;b&gt;" in formatters[Verification](broken)


def test_the_theorem_is_in_the_page_or_the_reason_why_there_is_none(shelf):
    """The zip behind the link holds what `export --to coq` writes."""
    folder, written = shelf("lookup")
    [encoded] = re.findall(r'href="data:application/zip;base64,([^"]+)"', written.page.read_text())
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(encoded))) as archive:
        found = {name.removeprefix("coq/"): archive.read(name).decode() for name in archive.namelist()}
    assert found == coq_files(folder)
    said = "No Coq theorem can be written for the construction local-polynomials"
    assert said in shelf("layers")[1].page.read_text()
