"""Theorems made into code: formula, box and tolerance to weights."""
