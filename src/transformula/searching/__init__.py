"""Searches for evidence: where to cut. They call the kernel's bounds, and the kernel evaluates it again."""
