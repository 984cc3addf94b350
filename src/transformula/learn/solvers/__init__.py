"""Numerical solvers: data to polynomials, by linear algebra instead of gradient descent."""
