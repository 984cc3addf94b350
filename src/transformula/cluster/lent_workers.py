"""Proofs on many workers: the kernel asks for the parts of a step, and gets a result or None for each.

A search with several independent questions may submit them `ahead`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import Any

from transformula.cluster.engines import Engine, EngineError, opened_engine
from transformula.kernel.parts import Answer, Part, helped

#: Tasks for each worker in a step, so that none waits long for the slowest.
_TURNS = 3

_lent: ContextVar[Engine | None] = ContextVar("lent", default=None)


@contextmanager
def workers(jobs: int | None = None, scheduler: str | None = None) -> Iterator[Engine]:
    """Lend workers to every proof inside the block; the result is the same, bit by bit.

    Parameters
    ----------
    jobs : int, optional
        Processes of this machine; by default one for each core.
    scheduler : str, optional
        The address of a Dask scheduler, like ``tcp://10.0.0.1:8786``, instead.

    Examples
    --------
    >>> import transformula as tf
    >>> with tf.workers(jobs=2):
    ...     tf.compile("sin(x*y)", on="x=0..1, y=0..1", eps=1e-3).status
    'proven'
    """
    with opened_engine(jobs, scheduler) as engine, helped(partial(spread, engine)):
        before = _lent.set(engine)
        try:
            yield engine
        finally:
            _lent.reset(before)


def ahead(function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Index and value of each task that lent workers completed, as they are ready; nothing without workers.

    Tasks are taken as workers come free.
    """
    engine = _lent.get()
    if engine is None:
        return
    try:
        for outcome in engine.run(function, tasks):
            if outcome.error is None:
                yield outcome.index, outcome.value
    except EngineError:
        pass  # whoever asked does what is missing


def spread(engine: Engine, function: Callable[[Part], Answer], parts: Sequence[Part]) -> list[Any]:
    """Answers to as many parts as the workers could give; None for the others."""
    answers: list[Any] = [None] * len(parts)
    count = min(len(parts), _TURNS * max(engine.workers, 1))
    edges = [len(parts) * k // count for k in range(count + 1)]
    groups = [list(parts[a:b]) for a, b in pairwise(edges)]
    try:
        for outcome in engine.run(partial(_answers, function), groups):
            given = outcome.value
            start, stop = edges[outcome.index], edges[outcome.index + 1]
            if outcome.error is None and isinstance(given, list) and len(given) == stop - start:
                answers[start:stop] = given
    except EngineError:
        pass  # whoever asked computes what is missing
    return answers


def _answers(function: Callable[[Part], Answer], group: list[Part]) -> list[Any]:
    """The answers of one worker; a failure here happens again in the main process, which reports it."""
    return [_answer(function, part) for part in group]


def _answer(function: Callable[[Part], Answer], part: Part) -> Any:
    try:
        return function(part)
    except Exception:
        return None
