"""What tests of several constructions share."""

import pytest

from transformula.compiler.tables import library_starts as neighbours
from transformula.compiler.tables import smallest_table as fitting


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of tables that were tried, in order."""
    tried, attempt = [], fitting.attempt

    def counted(task, effort, size, *others, **more):
        tried.append(size)
        return attempt(task, effort, size, *others, **more)

    for module in (fitting, neighbours):
        monkeypatch.setattr(module, "attempt", counted)
    return tried
