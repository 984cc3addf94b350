"""Two checkouts compile the same formulas in turn: sizes, bounds and processor time beside each other.

``python benchmarks/side_by_side.py OTHER [--campaign 100] [--only NAME] [--json FILE]`` compares this checkout with the
one in the folder OTHER (``git worktree add OTHER COMMIT``). One process of each is kept; they take turns, formula by
formula, on the cases of formulas.csv in both formats and on random formulas of the campaign. The disk cache of tables is
off. It exits with 1 where this checkout loses a proof, needs more tokens or proves a bound more than 1 % larger.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: Seconds of processor time for one formula.
MOST_SECONDS = 60

_WORKER = """
import json, signal, sys, time
import transformula as tf
from transformula.errors import TransformulaError
signal.signal(signal.SIGPROF, lambda *_: (_ for _ in ()).throw(TimeoutError()))
for line in sys.stdin:
    asked = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    start = time.process_time()
    try:
        model = tf.compile(asked["formula"], on=asked["on"], **asked["options"])
        found = dict(construction=model.construction, tokens=model.memory_tokens, layers=model.layers,
                     heads=model.heads, bound=model.certificate.bound)
    except TransformulaError as error:
        found = dict(refused=str(error)[:200], best=getattr(error, "best_bound", None))
    except TimeoutError:
        found = dict(refused="timeout", best=None)
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(found | dict(seconds=time.process_time() - start)), flush=True)
""".replace("MOST_SECONDS", str(MOST_SECONDS))


class Side:
    """A process that compiles with the package of one checkout."""

    def __init__(self, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "TRANSFORMULA_CACHE": "off"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment,
        )  # fmt: skip

    def compiled(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What came of one formula."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


def questions(campaign: int, only: str | None) -> list[dict[str, Any]]:
    """The cases in both formats, then random formulas."""
    with (HERE / "formulas.csv").open(newline="") as file:
        cases = list(csv.DictReader(file))
    found = []
    for dtype in ("float64", "float32"):
        for case in cases:
            options = {"eps": float(case["eps"])} if dtype == "float64" else {"rel": 1e-3}
            asked = {"formula": case["formula"], "on": case["on"], "options": options | {"dtype": dtype}}
            found.append({"name": f"{case['name']} {dtype}", **asked})
    if campaign:
        from campaign import make_task

        for seed in range(campaign):
            task = make_task(seed)
            options = {k: v for k, v in task.options.items() if v is not None}
            found.append({"name": f"seed {seed}", "formula": task.formulas, "on": task.box, "options": options})
    return [asked for asked in found if only is None or only in asked["name"]]


def verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What is worse now, in a word; empty if nothing is."""
    if "refused" in old:
        return ""
    if "refused" in new:
        return "LOST"
    if new["tokens"] > old["tokens"]:
        return "TOKENS"
    return "BOUND" if new["tokens"] == old["tokens"] and not new["bound"] <= 1.01 * old["bound"] else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--campaign", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    old, new = Side(given.other.resolve()), Side(HERE.parent)
    rows = []
    warm = {"formula": "sin(x)*y", "on": "x=0..1, y=0..1", "options": {"eps": 0.01}}
    old.compiled(warm), new.compiled(warm)
    for asked in questions(given.campaign, given.only):
        plain = {key: asked[key] for key in ("formula", "on", "options")}
        before, after = old.compiled(plain), new.compiled(plain)
        worse = verdict(before, after)
        rows.append({"name": asked["name"], "old": before, "new": after, "worse": worse})
        shown = [str(side.get("tokens", "refused")) for side in (before, after)]
        print(
            f"{asked['name']:28s} tokens {shown[0]:>7s} {shown[1]:>7s}  "
            f"seconds {before['seconds']:6.2f} {after['seconds']:6.2f}  {worse}",
            flush=True,
        )
    both = [row for row in rows if "tokens" in row["old"] and "tokens" in row["new"]]
    ratios = {
        "tokens": math.fsum(r["new"]["tokens"] for r in both) / max(1, math.fsum(r["old"]["tokens"] for r in both)),
        "seconds": math.fsum(r["new"]["seconds"] for r in rows) / math.fsum(r["old"]["seconds"] for r in rows),
        "median seconds, old": statistics.median(r["old"]["seconds"] for r in rows),
        "median seconds, new": statistics.median(r["new"]["seconds"] for r in rows),
        "worst bound": max((r["new"]["bound"] / r["old"]["bound"] for r in both if r["old"]["bound"]), default=1.0),
    }
    gained = sum("refused" in r["old"] and "refused" not in r["new"] for r in rows)
    print({k: round(v, 4) for k, v in ratios.items()}, f"{len(rows)} formulas, {gained} gained,",
          f"{sum(bool(r['worse']) for r in rows)} worse")  # fmt: skip
    if given.json is not None:
        given.json.write_text(json.dumps({"ratios": ratios, "rows": rows}, indent=1) + "\n")
    return int(any(row["worse"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
