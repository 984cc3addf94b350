"""Formulas rewritten for the constructions: sums, factors, circuits, and how the kernel is told about them.

Nothing here is trusted. What a construction makes of a formula is stored as a circuit beside the weights
(`storing`), with hints for the kernel's own proof that the circuit equals the formula (`derivation`).
"""
