"""What tests of several constructions share."""

import pytest

from transformula.compiler.tables import one_size, smallest_table


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of tables that were tried, in order."""
    tried, attempt = [], smallest_table.attempt

    def counted(task, size, *others, **more):
        tried.append(size)
        return attempt(task, size, *others, **more)

    for module in (smallest_table, one_size):
        monkeypatch.setattr(module, "attempt", counted)
    return tried
