"""Formulas rewritten for the constructions: sums, factors, circuits, and what is stored of them for the kernel.

Nothing here is trusted. What a construction turns a formula into is stored as a circuit beside the weights (`storing`),
with hints for the kernel's own proof that the circuit equals the formula (`derivation`).
"""
