"""Workers lent to a compile: they fit the tables of several heads at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformula.cluster.engines import Engine

_lent: ContextVar[Engine | None] = ContextVar("lent", default=None)


@contextmanager
def workers(jobs: int | None = None, scheduler: str | None = None) -> Iterator[Engine]:
    """Lend workers to every fit inside the block; the result is the same, bit by bit.

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
    from transformula.cluster.engines import opened_engine

    with opened_engine(jobs, scheduler) as engine:
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
    from transformula.cluster.engines import EngineError

    try:
        for outcome in engine.run(function, tasks):
            if outcome.error is None:
                yield outcome.index, outcome.value
    except EngineError:
        pass  # the caller computes the missing tasks
