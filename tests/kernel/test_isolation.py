"""A check runs in a process of its own: limits of the system, one answer for each request, nothing left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

import transformula as tf
from support.folders import open_model
from transformula.kernel import isolation
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import OUT_OF_RESOURCES, Verification, verify_files
from transformula.kernel.folder.description import Mean
from transformula.kernel.isolation import from_json, receive, send, to_json, verify_isolated

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the limits are those of POSIX")

CASES = Path(__file__).parent / "cases.zip"


@pytest.fixture(scope="module")
def honest():
    model = tf.compile("sin(x)", on="x=0..1", eps=1e-3)
    return model.packed, model.certificate.to_json()


@pytest.fixture(scope="module")
def busy():
    """A folder that would keep a check busy for minutes: the end of its box is a sum of many special constants."""
    opened = open_model(tf.compile("x", on="x=0..1"))
    opened.body["box"] = "x=0..(" + "+".join(f"zeta(2.{k:05d})" for k in range(12_000)) + ")"
    return opened.forged()


def _spinning(*_):
    while True:
        pass


def _filling(*_):
    return [bytearray(1 << 20) for _ in range(4_000)]


@pytest.mark.parametrize("misbehave", [_spinning, _filling], ids=["time", "memory"])
def test_a_check_that_needs_too_much_is_stopped_by_the_system(misbehave, honest, monkeypatch):
    monkeypatch.setattr(isolation, "verify_files", misbehave)
    monkeypatch.setattr(isolation, "CPU_SECONDS", 1)
    monkeypatch.setattr(isolation, "MEMORY_BYTES", 20 << 30)  # of address space: this process has a lot of it
    if misbehave is _filling:
        monkeypatch.setattr(isolation, "MEMORY_BYTES", _address_space() + (100 << 20))
    assert verify_isolated(*honest) == Verification(False, reasons=(OUT_OF_RESOURCES,))


def _address_space():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_check_writes_no_file(honest, monkeypatch, tmp_path):
    def writing(*_):
        (tmp_path / "written").write_text("x" * 100)
        return Verification(True)

    monkeypatch.setattr(isolation, "verify_files", writing)
    monkeypatch.setattr(isolation, "MEMORY_BYTES", 20 << 30)
    assert not verify_isolated(*honest).verified
    assert not (tmp_path / "written").exists() or not (tmp_path / "written").read_text()


def test_a_busy_folder_is_out_of_resources_in_every_way_of_asking(busy, tmp_path):
    """The same words from the library, the command line and the kernel alone; 25 s and more before."""
    opened = open_model(tf.compile("x", on="x=0..1"))
    opened.body["box"] = json.loads(busy[0].description)["box"]
    folder = tmp_path / "busy"
    folder.mkdir()
    opened.forge(folder)
    limits = "from transformula.kernel import isolation as i; i.CPU_SECONDS = 1; "
    alone = f"import sys; {limits}from transformula.kernel.__main__ import main; sys.exit(main([{str(folder)!r}]))"
    done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, f"not verified: {OUT_OF_RESOURCES}\n", "")


def test_honest_folders_stay_below_a_fifth_of_the_limits(tmp_path):
    with zipfile.ZipFile(CASES) as archive:
        archive.extractall(tmp_path)
    for name, options in {
        "partition": {"formula": "sin(x)*y", "on": "x=0..1, y=0..1", "eps": 0.02, "construction": "partition"},
        "grid": {"formula": "sin(x*y)", "on": "x=0..1, y=0..1", "eps": 1e-4, "construction": "lookup"},
        "dense": {"formula": "(a + b + c + d + 1)**6", "on": "a=0..1, b=0..1, c=0..1, d=0..1"},
        "local": {"formula": "sin(x)", "on": "x=0..1", "eps": 1e-4, "construction": "local-polynomials"},
    }.items():
        tf.compile(**options).save(tmp_path / name)
    code = """
import pathlib, sys
from transformula.kernel import isolation
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import verify_folder

isolation.CPU_SECONDS //= 5
isolation.MEMORY_BYTES //= 5
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    found = verify_folder(folder, isolation.verify_isolated)
    assert found.verified, (folder.name, found.reasons)
"""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_results_travel_unchanged():
    mean = Mean(0.1, 0.2, 0.3)
    for result in (
        Verification(True, 0.1, 5e-324, 0.30000000000000004, 1.0),
        Verification(True, 0.1, 0.2, 0.3, 1.0, mean),
        Verification(False, eps=1e-6, reasons=("first", "second: é \n")),
    ):
        assert from_json(to_json(result)) == result
    assert (
        from_json(to_json(Verification(True))[:-1])
        == from_json(b"")
        == Verification(False, reasons=(OUT_OF_RESOURCES,))
    )


def test_requests_travel_whole_or_not_at_all(honest):
    stream = io.BytesIO()
    send(stream, *honest)
    whole = stream.getvalue()
    assert receive(io.BytesIO(whole)) == honest
    assert receive(io.BytesIO(whole[:-1])) is None and receive(io.BytesIO(b"")) is None


def test_the_verdict_is_that_of_the_check_in_process(honest):
    assert verify_isolated(*honest) == verify_files(*honest)


def _loud(*_):
    os.write(1, b"FLINT exception (General error):\n    Unable to allocate memory\n")
    return Verification(False, reasons=("loud",))


def test_words_of_a_library_are_no_answer(honest, monkeypatch, capfd):
    """FLINT writes to standard output when memory runs out, and that is where `serve` answers."""
    monkeypatch.setattr(isolation, "verify_files", _loud)
    monkeypatch.setattr(isolation, "MEMORY_BYTES", 20 << 30)
    assert verify_isolated(*honest).reasons == ("loud",)
    assert capfd.readouterr().out == ""
    assert from_json(b"FLINT exception\n").reasons == ("the check gave no answer",)


def test_lower_limits_of_the_system_are_kept(honest, tmp_path):
    """setrlimit failed where a hard limit was lower already, and every folder was out of resources."""
    folder = tf.compile("x*y", on="x=0..1, y=0..1").save(tmp_path / "model")
    command = f"ulimit -t 5; exec {sys.executable} -m transformula.kernel {folder}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("verified"), done


def test_a_name_that_is_too_long_is_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "transformula.kernel", "x" * 300], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2) and done.stdout.startswith("not verified") and not done.stderr


def test_a_fork_takes_no_lock_along():
    """A child forked while another thread held FLINT's settings waited for them for ever."""
    held, done = threading.Event(), threading.Event()

    def hold():
        with precision(64):
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        with precision(64):
            os._exit(7)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    done.set()
    thread.join()
    assert ended and os.waitstatus_to_exitcode(status) == 7
