"""What a compact memory holds: its words, run by run."""

from __future__ import annotations

import numpy as np

from transformula.model import Model


def word_lines(model: Model, most: int) -> list[tuple[str, str, str]]:
    """For each run, its number, its word in bits, and its offset in buckets; the first ``most`` of them."""
    weights = model.weights
    memory, slots = weights.memory.dense(), weights.slots
    bits = int(memory[:, slots.index("index")].max())
    words = memory[1:, slots.index("word")]
    shifts = memory[1:, slots.index("shift")]
    runs = np.flatnonzero(words)[:most]
    return [(str(k + 1), f"{int(words[k]):0{bits}b}", f"{shifts[k]:g}") for k in runs.tolist()]


def word_counts(model: Model) -> tuple[int, int]:
    """How many runs there are, and how many bits a word has."""
    weights = model.weights
    memory, slots = weights.memory.dense(), weights.slots
    return int(np.count_nonzero(memory[:, slots.index("word")])), int(memory[:, slots.index("index")].max())
