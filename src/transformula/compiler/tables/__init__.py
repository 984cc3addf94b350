"""Choosing the scores of softmax tables and solving for their values."""
