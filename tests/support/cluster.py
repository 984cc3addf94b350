"""A real Dask cluster for tests: a scheduler and workers as processes that talk over TCP."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import transformula

PATHS = [str(Path(transformula.__file__).parents[1]), str(Path(__file__).parents[1])]


def who(seconds):
    """A task: which process does it."""
    time.sleep(seconds)
    return os.getpid()


def fall(task):
    """A task that fails if it is the second."""
    if task == 1:
        raise ValueError("this one fails")
    return task


class Cluster:
    """A scheduler with its address, and workers that can be killed."""

    def __init__(self, workers):
        self.workers = []
        self.scheduler, self.address = _started(["dask_scheduler", "--port", "0"], r"Scheduler at:\s+(tcp://\S+)")
        for _ in range(workers):
            self.add()

    def add(self, code=""):
        """Start a worker; ``code`` runs in it first."""
        arguments = ["dask_worker", self.address, "--nthreads", "1", "--no-nanny"]
        self.workers.append(_started(arguments, r"(Registered to)", code)[0])

    def stop(self):
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()
            process.stderr.close()


def _started(arguments, sign, code=""):
    """Run a command of Dask's, and return it with what its log says once it is up."""
    name, *rest = [*arguments, "--no-dashboard", "--host", "127.0.0.1"]
    run = f"{code}\nimport sys\nfrom distributed.cli.{name} import main\nsys.argv[0] = 'dask'\nmain()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}
    environment |= {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"}  # how long a dead worker is called: else 30 s
    process = subprocess.Popen([sys.executable, "-c", run, *rest], stderr=subprocess.PIPE, text=True, env=environment)
    seen = []
    for line in process.stderr:
        seen.append(line)
        if found := re.search(sign, line):
            return process, found[1]
    raise AssertionError("".join(seen))


@contextmanager
def cluster(workers=2):
    """A cluster that is gone after the block."""
    started = Cluster(workers)
    try:
        yield started
    finally:
        started.stop()
