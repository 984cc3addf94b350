"""Searches for evidence: where to cut. They use the kernel's bounds, and the kernel evaluates the evidence again."""
