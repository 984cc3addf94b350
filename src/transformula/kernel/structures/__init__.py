"""Weights read entry by entry: powers of linear forms, tables, ReLUs, and the circuit that is meant."""
