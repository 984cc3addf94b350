"""The explorer's server: jobs, streams, cancelling, limits, and requests that mean no good."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest

import transformula as tf
from support.explorer import PATIENCE, QUICK, SLOW, parse_events, run_apart, running, wait_until
from transformula.compiler.comparison import TRIED
from transformula.explorer.worker_pool import Worker


@pytest.fixture(scope="module")
def server():
    with running() as at:
        yield at


@pytest.fixture(scope="module")
def model(server):
    return server.compile()


def test_a_compilation_is_streamed_and_kept(server):
    events = server.events("/api/compile", QUICK)
    assert [e["event"] for e in events[:2]] == ["queued", "started"]
    facts = events[-1]["facts"]
    assert facts["construction"] == "lookup" and facts["bound"] <= 1e-2
    assert facts["variables"] == ["x", "y"] and facts["ranges"] == [[0, 3], [0, 3]]


def test_a_download_round_trips_with_its_proof(server, model, tmp_path):
    answer = server.client.get(f"/api/models/{model[0]}/model.zip")
    assert answer.headers["content-disposition"] == 'attachment; filename="model.zip"'
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path)
    assert tf.load(tmp_path / "model").certificate.bound == model[1]["bound"]
    assert tf.verify(tmp_path / "model").verified


def test_onnx_is_offered_where_it_can_be_written(server, model):
    offered = server.client.get("/api/start").json()["onnx"]
    answer = server.client.get(f"/api/models/{model[0]}/model.onnx")
    assert answer.status_code == (200 if offered else 404)
    assert not offered or len(answer.content) > 100


def test_the_theorem_is_offered_or_the_reason_why_there_is_none(server, model):
    answer = server.client.get(f"/api/models/{model[0]}/theorem.zip")
    assert answer.headers["content-disposition"] == 'attachment; filename="theorem.zip"'
    names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
    assert {"coq/Transformer.v", "coq/Model.v", "coq/Proof.v", "coq/README.md"} <= set(names)
    extended, _ = server.compile(formula="sin(x)/x", box="x=-1..1", eps=0.1)
    refused = server.client.get(f"/api/models/{extended}/theorem.zip")
    assert refused.status_code == 422 and "no Coq theorem" in refused.json()["message"]


def test_slices_and_attention(server, model):
    path = f"/api/models/{model[0]}"
    cut = server.post(f"{path}/slice", {"variables": ["x", "y"], "points": 21}).json()
    assert len(cut["axes"][0]) == len(cut["model"]) == len(cut["model"][0]) == 21
    assert 0 < cut["worst"] <= cut["bound"] == model[1]["bound"]
    line = server.post(f"{path}/slice", {"variables": ["y"], "at": {"x": 1.5}}).json()
    assert line["held"] == {"x": 1.5} and len(line["error"]) == 401
    there = server.post(f"{path}/attention", {"point": {"x": 1, "y": 2}}).json()
    assert [h["name"] for h in there["heads"]] == ["sin(x)", "cos(y)"]
    assert all(abs(sum(h["weights"]) - 1) < 1e-6 for h in there["heads"])
    assert abs(there["model"] - there["formula"]) <= there["bound"]


def test_the_cells_of_a_partition(server):
    curve, facts = server.compile(formula="sin(3*x)", box="x=0..2", eps=0.1, construction="partition")
    cells = server.post(f"/api/models/{curve}/slice", {"variables": ["x"]}).json()["cells"]
    assert cells["total"] == len(cells["lines"]) == facts["memory_tokens"] - 1
    assert len(cells["centres"]) == facts["memory_tokens"]
    plane, facts = server.compile(formula="sin(x)*y", box="x=0..1, y=0..1", eps=0.1, construction="partition")
    cells = server.post(f"/api/models/{plane}/slice", {"variables": ["x", "y"]}).json()["cells"]
    assert len(cells["centres"]) == facts["memory_tokens"]
    assert all(x0 == x1 or y0 == y1 for x0, y0, x1, y1 in cells["lines"])


def test_every_example_compiles(server):
    for example in server.client.get("/static/examples.json").json():
        model, facts = server.compile(**{name: example[name] for name in ("formula", "box", "eps", "construction")})
        assert facts["bound"] <= (example["eps"] or 1e-6), example["name"]
        shown = facts["variables"][:2]
        assert server.post(f"/api/models/{model}/slice", {"variables": shown}).status_code == 200
        assert server.post(f"/api/models/{model}/attention", {"point": {}}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field", "words", "position"),
    [
        ({"formula": "sin(x + cos(y)"}, "formula", "')' is missing", 14),
        ({"formula": "sin(x) + cos(y) $"}, "formula", "unexpected '$'", 16),
        ({"formula": "sin(x); cos(y) +* x"}, "formula", "unexpected '*'", 16),
        ({"formula": "sin(x) + z + cos(y)"}, "formula", "unknown name 'z'", None),
        ({"formula": ""}, "formula", "empty", None),
        ({"box": "x=0..3"}, "formula", "unknown name 'y'", None),
        ({"box": "x=0..3, y=3..0"}, "box", "reversed", None),
        ({"box": "x=0..3, y"}, "box", "y has no interval: write y=low..high", None),
        ({"eps": 0}, "eps", "above 0", None),
        ({"eps": "small"}, "eps", "above 0", None),
        ({"construction": "magic"}, "construction", "", None),
    ],
)
def test_complaints_belong_to_a_field(server, body, field, words, position):
    answer = server.post("/api/compile", {**QUICK, **body})
    problem = answer.json()
    assert answer.status_code == 422
    assert problem["field"] == field and words in problem["message"]
    assert problem.get("position") == position


def test_what_can_not_be_proven_says_where(server):
    last = server.events("/api/compile", {**QUICK, "formula": "log(x) + y"})[-1]
    assert last["event"] == "refused" and last["problem"]["kind"] == "not proven"
    assert "x = 0" in last["problem"]["place"]


def test_a_check_typesets(server):
    answer = server.post("/api/check", {"formula": "x**2/y", "box": "x=0..1, y=1..2"}).json()
    assert answer["event"] == "done" and "<mfrac>" in answer["mathml"][0]


def test_the_page_reads_what_the_command_line_reads(server):
    body = {"formula": "d = c*x²; sin(d) + β", "box": "x in [0, 1], 0 <= β <= 1, c=0.5"}
    answer = server.post("/api/check", body).json()
    assert answer["event"] == "done" and answer["problem"]["variables"] == ["x", "beta"]


def test_advice_names_the_fields_of_the_page(server):
    body = {**QUICK, "formula": "exp(x)", "box": "x=0..1", "eps": 1e-7, "dtype": "float32"}
    problem = server.events("/api/compile", body)[-1]["problem"]
    assert "ask for ε = " in problem["message"] and "use Floats float64" in problem["message"]


def test_cancelling_ends_the_work(server):
    before = set(server.explorer.compilers.processes)
    with server.client.stream("POST", "/api/compile", json=SLOW) as stream:
        events = parse_events(stream.iter_lines())
        assert [next(events)["event"] for _ in range(2)] == ["queued", "started"]
        assert server.explorer.compilers.admitted == 1
    wait_until(lambda: server.explorer.compilers.admitted == 0, "the job is gone")
    wait_until(lambda: before - set(server.explorer.compilers.processes), "its process has ended")
    assert server.compile()[1]["bound"] <= 1e-2


def test_a_comparison_streams_points(server):
    seen = []
    body = {"formula": "sin(x)", "box": "x=0..3"}
    with server.client.stream("POST", "/api/compare", json=body) as stream:
        for event in parse_events(stream.iter_lines()):
            seen += [event] if event["event"] == "point" else []
            if len(seen) == 3:
                break
    assert [p["series"] for p in seen] == ["lookup", "partition", "trained"]
    assert [p["proven"] for p in seen] == [True, True, False] and seen[2]["points"] > 10_000
    assert all(p["tokens"] > 0 and p["error"] > 0 for p in seen)


def test_all_constructions_stream_as_rows(server):
    """One row for each construction, proven or refused, and the worker is free again when the reader leaves."""
    body = {"formula": "x*y", "box": "x=0..1, y=0..1", "eps": 0.05}
    with server.client.stream("POST", "/api/constructions", json=body) as stream:
        events = list(parse_events(stream.iter_lines()))
    rows = {event["name"]: event for event in events if event["event"] == "entry"}
    assert events[-1]["event"] == "done" and len(rows) == len(TRIED)
    assert rows["polynomial"]["layers"] == 2 and rows["circuit"]["memory_tokens"] == 3
    assert all(row["bound"] <= 0.05 and row["parameters"] > 0 for row in rows.values() if row["refusal"] is None)
    harder = {"formula": "exp(x)*y*z", "box": "x=0..1, y=0..1, z=0..1", "eps": 1e-3}
    with server.client.stream("POST", "/api/constructions", json=harder) as stream:
        next(parse_events(stream.iter_lines()))
    wait_until(lambda: server.explorer.compilers.admitted == 0, "the work has ended")


def test_several_users_do_not_block_each_other(server, model):
    """Everybody compiles and draws at once, while somebody's long job runs."""
    with server.client.stream("POST", "/api/compile", json=SLOW) as slow:
        events = parse_events(slow.iter_lines())
        next(events)
        with ThreadPoolExecutor(6) as users:
            made = [users.submit(server.compile, eps=10.0**-k) for k in range(1, 4)]
            drawn = [users.submit(server.post, f"/api/models/{model[0]}/slice", {"variables": ["x"]}) for _ in range(6)]
        assert all(future.result()[1]["bound"] < 1 for future in made)
        assert [future.result().status_code for future in drawn] == [200] * 6
        assert server.explorer.compilers.admitted == 1  # the long one is still at it
    wait_until(lambda: server.explorer.compilers.admitted == 0, "the job is gone")


def test_limits_on_the_queue():
    with running(compile_workers=1, waiting=1) as at:
        kept, _ = at.compile()
        with at.client.stream("POST", "/api/compile", json=SLOW) as stream:
            served = parse_events(stream.iter_lines())  # whoever lets go of it leaves
            assert next(served)["event"] == "queued"
            with at.client.stream("POST", "/api/compile", json=QUICK) as second:
                waiting = parse_events(second.iter_lines())
                assert next(waiting)["event"] == "queued"
                busy = at.post("/api/compile", QUICK)
                assert busy.status_code == 429 and int(busy.headers["retry-after"]) > 0
                assert at.post(f"/api/models/{kept}/slice", {"variables": ["x"]}).status_code == 200
            wait_until(lambda: at.explorer.compilers.admitted == 1, "who waits can leave")
        wait_until(lambda: at.explorer.compilers.admitted == 0, "and so can who is served")


def test_limits_on_time():
    with running(compile_workers=1, compile_seconds=3) as at:
        last = at.events("/api/compile", SLOW)[-1]
        assert last["problem"]["kind"] == "time" and "3 seconds" in last["problem"]["message"]
        at.explorer.limits = replace(at.explorer.limits, compile_seconds=PATIENCE)
        assert at.compile()[1]["bound"] <= 1e-2


def test_limits_on_the_shelf_and_on_slow_senders():
    with running(shelf_models=2) as at:
        first, second, third = (at.compile(eps=10.0**-k)[0] for k in (1, 2, 3))
        kept = [at.client.get(f"/api/models/{m}/model.zip").status_code for m in (first, second, third)]
        assert kept == [404, 200, 200] and len(at.explorer.shelf) == 2
    start = "POST /api/check HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    with running(body_seconds=0.5) as at:
        assert raw(at, start + "Host: {host}\r\n\r\n{{").startswith("HTTP/1.1 408")


def raw(server, text):
    """What is answered to bytes as they are, whatever a client library would make of them."""
    host = server.url.removeprefix("http://")
    name, port = host.split(":")
    with socket.create_connection((name, int(port)), PATIENCE) as connection:
        connection.sendall(text.format(host=host).encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
def test_limits_on_memory_and_model_size():
    huge = {"formula": "sin(20*x)*cos(20*y)", "box": "x=0..1, y=0..1", "eps": 0.03}
    with running(memory_bytes=240 << 20, model_bytes=1 << 20) as at:
        last = at.events("/api/compile", {**huge, "construction": "partition"})[-1]
        assert last["problem"]["kind"] == "memory", last
        last = at.events("/api/compile", {**huge, "eps": 0.1, "construction": "partition"})[-1]
        assert last["problem"]["field"] == "eps" and "more than this page can keep" in last["problem"]["message"]
        assert at.compile()[1]["bound"] <= 1e-2


def test_a_flood_is_answered():
    """40 at once: some are done, the others are told to come back; nobody waits in vain."""
    many = httpx.Limits(max_connections=40)
    with running(waiting=2) as at, httpx.Client(base_url=at.url, timeout=PATIENCE, limits=many) as client:
        with ThreadPoolExecutor(40) as crowd:
            answers = crowd.map(lambda _: client.post("/api/compile", json={**QUICK, "eps": 0.1}), range(40))
            statuses = [answer.status_code for answer in answers]
        assert set(statuses) <= {200, 429} and 200 in statuses and 429 in statuses
        assert at.compile()[1]["bound"] <= 1e-2


def chunked(size):
    for _ in range(size // 1000):
        yield b" " * 1000


def get(url, **headers):
    return {"method": "GET", "url": url, "headers": headers}


def post(url, body=None, content=None, kind="application/json", **headers):
    headers = {"content-type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}}
    content = json.dumps({} if body is None else body) if content is None else content
    return {"method": "POST", "url": url, "content": content, "headers": headers}


CHECK, COMPILE, SLICE, ATTENTION = (
    "/api/check", "/api/compile", "/api/models/MODEL/slice", "/api/models/MODEL/attention",
)  # fmt: skip


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (421, get("/", host="evil.example")),
        (421, get("/", host="localhost.evil.example:80")),
        (421, post(CHECK, host="127.0.0.1.evil.example")),
        (403, post(CHECK, origin="http://evil.example")),
        (403, post(CHECK, origin="null")),
        (403, post(CHECK, sec_fetch_site="cross-site")),
        (415, post(CHECK, content="formula=x", kind="text/plain")),
        (405, {**post(CHECK), "method": "PUT"}),
        (405, get(CHECK)),
        (422, post(CHECK, content="{")),
        (422, post(CHECK, content="[1]")),
        (400, post(CHECK, content="[" * 30_000)),
        (400, post(CHECK, content=b'{"formula": "\xff\xfe"}')),
        (422, post(CHECK, {"formula": "x", "box": "x=0..1", "path": "/etc"})),
        (413, post(CHECK, content=b" " * 100_000)),
        (413, post(CHECK, content=chunked(200_000))),
        (422, post(CHECK, {"formula": "x+" * 10_000, "box": "x=0..1"})),
        (422, post(COMPILE, {**QUICK, "formula": "(" * 4000})),
        (422, post(COMPILE, {**QUICK, "formula": "9**9**9**9 + x + y"})),
        (422, post(COMPILE, {**QUICK, "formula": "__import__('os').system('x')"})),
        (422, post(COMPILE, content='{"formula": "x", "box": "x=0..1", "eps": NaN}')),
        (422, post(SLICE, {"variables": ["x", "y"], "points": 100_000})),
        (422, post(SLICE, {"variables": ["x", "y", "x"]})),
        (422, post(SLICE, {"variables": ["z"]})),
        (422, post(SLICE, {"variables": ["x"], "output": 7})),
        (422, post(ATTENTION, {"point": {"x": "1; drop"}})),
        (422, post(ATTENTION, {"point": {}, "query": 99})),
        (404, post("/api/models/nobody/slice", {"variables": ["x"]})),
        (404, get("/api/models/..%2f..%2fetc/model.zip")),
        (404, get("/api/models/MODEL/model.safetensors")),
        (404, get("/static/..%2fserver.py")),
        (404, get("/static/%2fetc%2fpasswd")),
        (404, get("/openapi.json")),
    ],
)
def test_hostile_requests_get_an_answer(server, model, status, request_):
    request_ = {**request_, "url": request_["url"].replace("MODEL", model[0])}
    answer = server.client.request(**request_)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"] and "Traceback" not in answer.text
    assert server.client.get("/api/start").status_code == 200


def test_paths_are_not_taken_from_raw_requests(server):
    for path in ("/static/../../server.py", "//etc/passwd", "/static/..", "/api/models/../model.zip"):
        asked = f"GET {path} HTTP/1.1\r\nHost: {{host}}\r\nConnection: close\r\n\r\n"
        assert raw(server, asked).startswith("HTTP/1.1 404"), path


def test_the_page_is_served_with_its_guards(server):
    for path in ("/", "/static/explorer.js", "/static/explorer.css", "/static/plotly.min.js", "/api/start"):
        answer = server.client.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe-eval" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert server.client.get("/").headers["cache-control"] == "no-store"
    own = server.client.post("/api/check", json={"formula": "x", "box": "x=0..1"}, headers={"origin": server.url})
    assert own.status_code == 200


def test_the_comparison_stops_in_time_and_at_a_refusal(monkeypatch):
    from transformula.explorer import worker_tasks as comparing
    from transformula.kernel.syntax.boxes import Formula

    monkeypatch.setattr(comparing, "TRAINED", (4,))
    monkeypatch.setattr(comparing, "EPOCHS", 2)
    monkeypatch.setattr(comparing, "MAX_PARTITION_TOKENS", 50)
    events = list(comparing.compare(Formula.of("sin(x)", "x=0..3"), "float64", seconds=600))
    notes = {e["series"]: e["message"] for e in events if e["event"] == "note"}
    assert "more than 50 tokens" in notes["partition"]
    tokens = [e["tokens"] for e in events if e["event"] == "point" and e["series"] == "lookup"]
    assert tokens == sorted(tokens) and len(tokens) == len(comparing.LOOKUP_STEPS)
    hurried = list(comparing.compare(Formula.of("sin(x)", "x=0..1"), "float64", seconds=0))
    assert {e["event"] for e in hurried} == {"note"}
    undefined = list(comparing.compare(Formula.of("log(x)", "x=-1..0"), "float64", seconds=60))
    assert not [e for e in undefined if e["event"] == "point"]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as listing:
        return [int(child) for child in listing.read().split()]


def alive(pid):
    with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
def explore():
    """explore(*options) starts the command; it is ended with the test."""
    started = []

    def start(*options):
        command = [
            sys.executable,
            "-c",
            "from transformula.cli import main; main()",
            "explore",
            "--no-browser",
        ]
        started.append(
            subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal")
@pytest.mark.parametrize("how", ["killed", "dead already"])
def test_a_worker_is_collected_by_one_hand(how, caplog):
    """Its exit code says why it ended, so nothing else may take it, and nothing is said on the terminal."""

    async def end_it_often():
        worker = await Worker.start(memory=2**30)
        if how == "dead already":
            os.kill(worker.process.pid, signal.SIGKILL)
        for _ in range(2000):
            worker.kill()
        return await worker.process.wait()

    assert run_apart(end_it_often) == -signal.SIGKILL
    assert not caplog.records


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_ends_cleanly(explore, how):
    process = explore("--json")
    line = process.stdout.readline()
    assert line.startswith('{"url": "http://127.0.0.1:')
    url = line.split('"')[3]
    assert httpx.post(f"{url}api/check", json={"formula": "x", "box": "x=0..1"}, timeout=PATIENCE).status_code == 200
    with httpx.stream("POST", f"{url}api/compile", json=SLOW, timeout=PATIENCE) as stream:
        events = parse_events(stream.iter_lines())
        assert [next(events)["event"] for _ in range(2)] == ["queued", "started"]
        workers = children(process.pid)
        assert workers
        process.send_signal(how)
        out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == ("", "")
    assert process.returncode == (0 if how == signal.SIGINT else -how)
    wait_until(lambda: not any(map(alive, workers)), "all workers have ended")


def test_a_port_in_use_is_said(explore):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = explore("--port", str(port))
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert err == f"error: port {port} is in use: give another port, or none for a free one\n"


def test_what_is_missing_is_said(explore):
    code = "import sys; sys.modules['uvicorn'] = None; from transformula.cli import main; main()"
    command = [sys.executable, "-c", code, "explore"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "needs uvicorn" in done.stderr and "pip install 'transformula[explorer]'" in done.stderr


def test_starting_is_late():
    """The verbs' help needs none of the server's packages."""
    late = "{'fastapi', 'uvicorn', 'plotly'}"
    code = f"import sys; import transformula.cli.app; print(sorted({late} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "[]\n"
