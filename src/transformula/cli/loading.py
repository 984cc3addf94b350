"""A model from a folder; what goes wrong with it later is blamed on the folder only if the checker agrees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from transformula.errors import NotProvenError, TransformulaError

if TYPE_CHECKING:
    from transformula.model import Model


@contextmanager
def loaded(folder: Path) -> Iterator[Model]:
    """Load a model to work with it: weights that break the code and do not verify are a refusal, not a fault."""
    from transformula.model import Model
    from transformula.proven import verify_folder

    try:
        yield Model.load(folder)
    except (TransformulaError, OSError, MemoryError):
        raise
    except Exception:
        result = verify_folder(folder)
        if result.verified:
            raise
        raise NotProvenError(f"{folder} does not verify: {'; '.join(result.reasons)}") from None
