"""The explorer never lets a claim stand beside a formula it is not about."""

import os
import signal

import pytest

from support.browsing import CURVE, change, drawn, fact, reach
from support.explorer import SLOW, run_apart, wait_until
from transformula.explorer.worker_pool import Worker

PROVEN = "Proven on the whole box, rounding included"
GREEN = "() => getComputedStyle(document.getElementById('claim-title')).color"


def compile_slowly(page, server):
    """Ask for something that takes long, and wait until it is worked on."""
    page.fill("#formula", SLOW["formula"])
    page.fill("#box", SLOW["box"])
    page.fill("#eps", str(SLOW["eps"]))
    page.select_option("#construction", SLOW["construction"])
    reach(page, "working")
    wait_until(lambda: server.explorer.compilers.admitted == 1, "the job runs")


def test_after_cancelling_the_old_claim_says_whose_it_is(visit, server):
    page = visit(CURVE)
    drawn(page)
    assert page.text_content("#claim-title") == PROVEN
    green = page.evaluate(GREEN)
    compile_slowly(page, server)
    assert page.is_visible("#progress") and page.is_enabled("#cancel")
    page.keyboard.press("Escape")
    reach(page, "done")
    assert page.text_content("#status") == "Cancelled."
    wait_until(lambda: server.explorer.compilers.admitted == 0, "the work has ended")
    assert page.text_content("#claim-title") == "Proven for the earlier formula"
    assert page.evaluate(GREEN) != green
    assert "sin(3*x) on x=0..2" in page.text_content("#claimed")
    titles = page.locator("#picture h2, #error-card h2, #attention h2")
    assert [title.get_attribute("data-earlier") for title in titles.all()] == ["earlier formula"] * 3
    assert float(page.locator("#picture-chart").evaluate("p => getComputedStyle(p).opacity")) < 0.7
    page.fill("#formula", CURVE["formula"])  # typed back: the claim is about it again
    page.fill("#box", CURVE["on"])
    page.fill("#eps", CURVE["eps"])
    assert page.text_content("#claim-title") == "Proven for the earlier settings"
    change(page, lambda: page.select_option("#construction", CURVE["construction"]))
    assert page.text_content("#claim-title") == PROVEN and page.evaluate(GREEN) == green
    assert page.locator("h2[data-earlier]").count() == 0


def test_a_mean_is_not_shown_as_a_bound_at_every_point(visit):
    page = visit({"formula": "x*y", "on": "x=0..1, y=0..1", "eps": "0.1", "construction": "yun", "show": "error"})
    page.wait_for_selector("#picture-chart[data-drawn] .main-svg")
    assert page.text_content("#claim-title").startswith("Proven on average over the box, not at every point")
    assert page.is_visible("#mean") and "mean error ≤" in page.text_content("#status")
    assert float(fact(page, "seams")) < 0.01 < float(fact(page, "outside seams"))
    assert "proven outside seams ≤" in page.text_content("#picture-note")
    change(page, lambda: page.select_option("#construction", "lookup"))
    assert page.text_content("#claim-title") == PROVEN and not page.is_visible("#mean")
    assert "proven outside seams" not in page.text_content("#picture-note")


def stop_the_clock(page):
    """The page's timers stand still, however busy the machine is."""
    page.clock.pause_at(page.evaluate("() => Date.now() / 1000") + 10)


def test_it_compiles_while_somebody_types(visit, server):
    page = visit(CURVE)
    drawn(page)
    sent = []
    page.on("request", lambda request: sent.append(request.url.removeprefix(server.url)))
    page.clock.install()

    def type_it():
        stop_the_clock(page)
        page.focus("#formula")
        page.keyboard.press("End")
        page.keyboard.type(" + x")
        assert page.text_content("#claim-title") == "Proven for the earlier formula" and not sent
        page.clock.resume()

    change(page, type_it)
    assert "sin(3*x) + x" in page.text_content("#claimed") and sent.count("/api/compile") == 1  # not once for each key
    assert page.evaluate("() => document.activeElement.id") == "formula"
    page.keyboard.type(" + (")
    page.wait_for_function("() => document.getElementById('formula-error').textContent !== ''")
    page.clock.fast_forward(10_000)
    assert page.get_attribute("body", "data-state") == "done"  # half a formula is not compiled
    page.fill("#box", SLOW["box"])
    page.fill("#formula", SLOW["formula"])
    page.fill("#eps", str(SLOW["eps"]))
    reach(page, "working")
    wait_until(lambda: server.explorer.compilers.admitted == 1, "it compiles without being told to")
    stop_the_clock(page)
    page.focus("#formula")
    page.keyboard.type(" ; x*y")  # another key ends what it was compiling
    wait_until(lambda: server.explorer.compilers.admitted == 0, "the work has ended")
    page.keyboard.press("Escape")
    before = len(sent)
    page.clock.run_for(10_000)
    page.evaluate("() => fetch('/static/api.js')")
    assert page.text_content("#status") == "Cancelled." and sent[before:] == ["/static/api.js"]  # nor does it check
    assert sent.count("/api/compile") == 2


def test_any_name_of_a_variable_will_do(visit):
    names = ["__proto__", "constructor", "toString"]
    page = visit({"formula": "__proto__*constructor + toString", "on": ", ".join(f"{n}=0..1" for n in names)})
    assert drawn(page).endswith("map __proto__,constructor")
    assert [page.text_content(f"#at-{name}-value") for name in names] == ["0.4"] * 3
    page.focus("#at-__proto__")
    page.keyboard.press("PageUp")
    page.wait_for_function("() => document.getElementById('answer').textContent.startsWith('Transformer 0.6,')")
    chart = page.locator("#picture-chart .nsewdrag").first.bounding_box()
    page.mouse.click(chart["x"] + chart["width"] * 0.75, chart["y"] + chart["height"] * 0.25)
    page.wait_for_function("() => Number(document.getElementById('at-constructor-value').textContent) > 0.6")
    assert float(page.text_content("#at-__proto__-value")) > 0.6
    page.wait_for_function("() => location.hash.includes('__proto__%3A0.7')")
    page.reload()
    reach(page, "done")
    assert float(page.text_content("#at-__proto__-value")) > 0.6


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal")
def test_a_killed_worker_is_not_called_out_of_memory(visit, server):
    page = visit(CURVE)
    compile_slowly(page, server)
    for worker in list(server.explorer.compilers._all):
        os.kill(worker.process.pid, signal.SIGKILL)
    reach(page, "refused")
    assert page.text_content("#refusal-title") == "Stopped"
    assert page.text_content("#refusal-message") == "the worker process was stopped by signal 9 (SIGKILL): try again"
    assert page.text_content("#claim-title") == "Proven for the earlier formula"
    page.select_option("#construction", "auto")
    page.fill("#formula", "x*y")
    change(page, lambda: page.press("#formula", "Enter"))
    assert fact(page, "construction") == "polynomial"


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal")
@pytest.mark.parametrize(
    "said, known", [(b"", False), (b"FLINT exception:\n    Unable to allocate memory (8).\n", True)]
)
def test_an_abort_is_for_want_of_memory_only_where_that_was_said(said, known):
    async def end():
        worker = await Worker.start(memory=2**30)
        worker.errors.write(said)
        worker.errors.flush()
        os.kill(worker.process.pid, signal.SIGABRT)
        return await worker.ran_out_of_memory()

    assert run_apart(end) is known
