"""Formulas rewritten for the constructions: sums, factors, circuits, and their stored form.

Nothing here is trusted. A circuit is stored beside the weights (`store_circuit`) with hints for the kernel's own proof
that it equals the formula (`derivation_hints`).
"""
