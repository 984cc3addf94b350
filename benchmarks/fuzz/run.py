"""All fuzzers, side by side: ``python benchmarks/fuzz/run.py [--seed S] [--minutes M] [--only NAME] [--json FILE]``.

Prints a table, and for every violation its input and the command that reproduces it. The exit status is 1 if there is a
violation. The time is shared among the fuzzers; each is a process of its own, so that a crash is a violation too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

#: Shares of the time.
TARGETS = {
    "texts": 1, "jumps": 1, "functions": 1, "ranges": 1, "tables": 1, "forms": 1, "circuits": 2, "networks": 1,
    "runtimes": 1, "files": 1, "folders": 2, "busy": 2,
}  # fmt: skip
#: All cases that the time allows.
ANY = 2**62


def run_here(name: str, seed: int, cases: int, seconds: float) -> dict[str, Any]:
    """Run one fuzzer in this process."""
    return asdict(getattr(importlib.import_module(f"fuzz.{name}"), name)(seed, cases, seconds))


def run_apart(name: str, seed: int, cases: int, seconds: float) -> dict[str, Any]:
    """Run one fuzzer in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "outcome.json"
        arguments = ["--only", name, "--seed", seed, "--cases", cases, "--minutes", seconds / 60, "--json", out]
        one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TRANSFORMULA_CACHE": "off"}
        done = subprocess.run(
            [sys.executable, __file__, *map(str, arguments)], env=one_thread, capture_output=True, text=True
        )
        if out.exists():
            return dict(json.loads(out.read_text())["fuzzers"][name])
    what = f"the process ended with status {done.returncode}: {done.stderr.strip()[-500:]}"
    return {
        "cases": 0,
        "checks": {},
        "violations": [{"seed": seed, "given": "", "what": what}],
        "slowest": 0.0,
        "slowest_seed": seed,
    }


def table(outcomes: dict[str, dict[str, Any]]) -> str:
    """One line a fuzzer."""
    lines = [f"{'fuzzer':<10} {'cases':>8} {'checks':>9} {'violations':>10}  slowest case"]
    for name, found in outcomes.items():
        counts = f"{found['cases']:>8} {sum(found['checks'].values()):>9} {len(found['violations']):>10}"
        lines.append(f"{name:<10} {counts}  {found['slowest']:.2f} s (seed {found['slowest_seed']})")
    return "\n".join(lines)


def main() -> int:
    """Run the fuzzers, print the table and the violations, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", type=int, default=ANY, help="at most so many cases of each fuzzer")
    parser.add_argument("--minutes", type=float, default=4.0, help="for all fuzzers together")
    parser.add_argument("--only", choices=list(TARGETS), help="one fuzzer alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument("--json", type=Path, help="write the counts and the violations here")
    given = parser.parse_args()
    if given.only:
        outcomes = {given.only: run_here(given.only, given.seed, given.cases, 60 * given.minutes)}
    else:
        second = 60 * given.minutes * given.jobs / sum(TARGETS.values())
        with ThreadPoolExecutor(given.jobs) as pool:
            found = {
                name: pool.submit(run_apart, name, given.seed, given.cases, share * second)
                for name, share in sorted(TARGETS.items(), key=lambda item: -item[1])
            }
            outcomes = {name: found[name].result() for name in TARGETS}
    print(table(outcomes))
    violations = [(name, violation) for name, found in outcomes.items() for violation in found["violations"]]
    for name, violation in violations:
        print(f"\n{name}: {violation['given']}\n  {violation['what']}")
        print(f"  python benchmarks/fuzz/run.py --only {name} --seed {violation['seed']} --cases 1")
    if given.json:
        summary = {
            "seed": given.seed,
            "minutes": given.minutes,
            "cases": {name: found["cases"] for name, found in outcomes.items()},
            "checks": sum(sum(found["checks"].values()) for found in outcomes.values()),
            "violations": len(violations),
            "slowest": round(max(found["slowest"] for found in outcomes.values()), 2),
        }
        given.json.write_text(json.dumps({"summary": summary, "fuzzers": outcomes}, indent=1) + "\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # not this folder: its modules have names of others
    sys.exit(main())
