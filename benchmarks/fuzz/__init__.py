"""Fuzzers: random inputs for the kernel's parts, the runtimes and the checker, judged by independent evaluators.

`run.py` runs them side by side. Each module has one fuzzer of its own name, which runs seeded cases and returns an
`Outcome` (`cases`):

* `texts`, `jumps`: what a formula means, with and without where, floor, mod and sign;
* `functions`, `ranges`, `tables`: enclosures of values, slopes and errors contain what mpmath evaluates (`values`);
* `forms`: equal normal forms are equal functions;
* `circuits`: the formula, the weights and an adversary's floats are as close as is proven (`rounded`);
* `networks`, `runtimes`: weights are read as the blocks compute them, and every runtime keeps to the rounding claim;
* `files`, `folders`, `busy`: readers, forged folders, and folders that keep a check busy.
"""
