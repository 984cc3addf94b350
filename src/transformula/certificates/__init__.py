"""Proofs: one rule for each construction, the certificate, and the checker."""
