import math
from contextlib import contextmanager
MAX_WORK = 8e6
@contextmanager
def limited(most=MAX_WORK, apart=False):
    yield [0.0, most, 0.0]
def spend(work): pass
def left(): return math.inf
def counted(): return 0.0
