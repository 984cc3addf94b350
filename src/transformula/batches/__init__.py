"""Many formulas at once: requests in, one model folder each, a summary of all."""
