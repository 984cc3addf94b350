"""A watchdog for work that might not end."""

import signal
from contextlib import contextmanager

#: Seconds of processor time, whatever else the machine does: far more than honest work takes, and no measure of speed.
PATIENCE = 60


@contextmanager
def ends():
    """Fail if the block does not come to an end."""

    def fail(*_):
        raise AssertionError(f"it did not end in {PATIENCE} s of processor time")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
