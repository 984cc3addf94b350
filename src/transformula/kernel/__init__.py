"""The kernel: everything that must be right for a certificate to be true, and nothing else.

It turns a model folder into yes or no. It imports the standard library, numpy and python-flint only; it
contains no search, no heuristic, no deadline, no sampling and no executor. What the compiler found out
arrives as evidence, which is evaluated here again. docs/trust.md says how to read it.
"""
