"""Weights as data, the executors that run them, and their files."""
