"""Coq files: a model's distance to its formula as a theorem. Untrusted: `coqc` and `transcription` judge the result."""
