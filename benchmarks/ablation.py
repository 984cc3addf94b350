"""Ablation of the compiler's policy: each constant halved and doubled, each heuristic off, against the baseline.

``python benchmarks/ablation.py [--formulas 60] [--kinds cases ...] [--most-work 1] [--only NAME ...] [--page]`` prints a
Markdown table, and with ``--page`` writes it to docs/ablation.md; with ``--most-work``, only formulas that take at most
these seconds of work are compiled again. The formulas are a seeded sample of the cases in both formats, of the
campaign, of the cases at tolerances of 1e-9 to 1e-12, of single tables that are hard to fit, and of the gallery. Each
compilation runs in a process of its own with the disk cache of tables off. A formula is compiled again only if its
search reads the constant that changes. Work is the deterministic count of `transformula.budget`, so that the table is
the same on every machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

os.environ["TRANSFORMULA_CACHE"] = "off"
sys.path.append(str(Path(__file__).parent))
import transformula as tf
from campaign import in_child
from side_by_side import HERE, questions
from transformula import budget
from transformula.compiler import policy
from transformula.errors import TransformulaError

TIGHT = (1e-9, 1e-10, 1e-11, 1e-12)  # absolute tolerances of the cases in their third round
CAMPAIGN = 100  # random formulas to draw from
HARD = (1e-6, 1e-9, 1e-10, 1e-11)  # tolerances of the single tables
#: Functions whose tables are hard to fit, and their intervals.
HARD_TABLES = {
    "log(x)": "x=0.01..1", "1/x": "x=0.1..10", "asin(x)": "x=-1..0.99", "acos(x)": "x=0..1", "sqrt(x)": "x=0.001..1",
    "sin(20*x)": "x=0..1", "exp(-x**2)": "x=-3..3", "1/(1+25*x**2)": "x=-1..1",
}  # fmt: skip
#: Formulas, boxes and tolerances for the constructions that `auto` seldom takes.
GALLERY = [
    ("partition", "sin(x*y)", "x=0..1, y=0..1", 0.05),
    ("partition", "exp(x)", "x=0..1", 1e-3),
    ("corollary", "exp(x)", "x=0..1", 1e-6),
    ("corollary", "sin(x+y)", "x=0..1, y=0..1", 1e-3),
    ("yun", "sin(x)", "x=0..1", 0.05),
    ("yun", "x*y", "x=0..1, y=0..1", 0.1),
    ("local-polynomials", "exp(x)", "x=0..1", 1e-4),
    ("local-polynomials", "sin(x*y)", "x=0..1, y=0..1", 1e-2),
    ("attention-only", "x*y", "x=0..1, y=0..1", 0.05),
    ("lookup", "sin(x)*y", "x=0..3, y=0..1", 1e-3),
]
KINDS = ["cases", "campaign", "tight", "hard", "gallery"]
FORMULA_SECONDS = 60  # processor time of one formula
TABLES = "transformula.compiler.tables."
PAGE = HERE.parent / "docs" / "ablation.md"
HEADER = """# What the constants of the search buy

One constant of `compiler/policy.py` halved or doubled at a time, or one heuristic of the table fitter switched off,
against the baseline. Written by `python benchmarks/ablation.py {arguments}`.

- *read*: how many of the formulas read the constant at all; the others are not compiled again.
- *tokens*: memory tokens of all formulas that both prove; *more / fewer*: how many formulas need more, or fewer.
- *bound*: geometric mean of the proven bounds over the baseline's; *worst bound*: the largest of these ratios.
- *work*: the deterministic count of `transformula.budget`, the same on every machine; it includes refusals.
- *lost*, *gained*: formulas whose proof is lost, or found in addition.

Rows are written as they are measured, in the order of the policy: constants after the last row were not reached.
A small sample: a row of zeros is no proof that a constant buys nothing. Hard table fits (log, 1/u and asin at 1e-9 to
1e-11) are where the starts and fallbacks of the fitter matter, and these formulas hardly enter them.

"""

#: Heuristics that are functions: where they are called, and what is called in their place.
SWITCHES: dict[str, tuple[str, str, Any]] = {
    "oscillations": (TABLES + "smallest_table", "wave_table", lambda *_: None),
    "exponential sums": (TABLES + "smallest_table", "exponential_table", lambda *_: None),
    "equalised errors": (TABLES + "one_size", "equalise", lambda _problem, states, *_: list(states)),
    "poles": (TABLES + "fit_task", "nearest_poles", lambda *_: None),
    "hinges": (TABLES + "start_scores", "_hinges", lambda *_: ()),
    "geometric starts": (TABLES + "start_scores", "_geometric_sums", lambda *_: ()),
    "stretched tables": (TABLES + "smallest_table", "stretched_from", lambda *_: []),
    "stored scores": (TABLES + "one_size", "promising_sizes", lambda *_: []),
    "fallback growth": (TABLES + "smallest_table", "_grow_fast", lambda *_: None),
    "last refinement": (TABLES + "smallest_table", "_sharpened", lambda _task, table, _states: table),
}


def sample(count: int, kinds: list[str]) -> list[dict[str, Any]]:
    """A seeded sample with as many formulas of each kind, in a fixed order."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for asked in questions(CAMPAIGN, None):
        found["campaign" if asked["name"].startswith("seed") else "cases"].append(asked)
    with (HERE / "formulas.csv").open(newline="") as file:
        for case in csv.DictReader(file):
            for eps in TIGHT:
                asked = {"formula": case["formula"], "on": case["on"], "options": {"eps": eps}}
                found["tight"].append({"name": f"{case['name']} {eps:g}", **asked})
    for formula, box in HARD_TABLES.items():
        for eps in HARD:
            found["hard"].append({"name": f"{formula} {eps:g}", "formula": formula, "on": box, "options": {"eps": eps}})
    for name, formula, box, eps in GALLERY:
        options = {"eps": eps, "construction": name}
        found["gallery"].append({"name": f"{formula} as {name}", "formula": formula, "on": box, "options": options})
    each, rng = max(1, count // len(kinds)), random.Random(0)
    return [one for kind in kinds for one in rng.sample(found[kind], min(each, len(found[kind])))]


class Recorder(ModuleType):
    """The policy as a module that notes which of its constants are read."""

    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name.isupper():
            Recorder.read.add(name)
        return super().__getattribute__(name)


def compiled(asked: dict[str, Any]) -> dict[str, Any]:
    """Tokens, proven bound, work and constants read of one formula; no tokens where it was refused."""
    signal.setitimer(signal.ITIMER_PROF, FORMULA_SECONDS)
    found: dict[str, Any] = {"name": asked["name"], "tokens": None, "bound": None}
    policy.__class__ = Recorder
    Recorder.read.clear()
    with budget.limited(math.inf) as limit:
        try:
            model = tf.compile(asked["formula"], on=asked["on"], **asked["options"])
            found |= {"tokens": model.memory_tokens, "bound": model.certificate.bound}
        except (TransformulaError, TimeoutError) as error:
            found |= {"bound": getattr(error, "best_bound", None)}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return found | {"work": limit.spent, "read": sorted(Recorder.read)}


def scaled(value: Any, factor: float) -> Any:
    """A constant times a factor, entry by entry; whole numbers stay whole and positive."""
    if isinstance(value, dict):
        return {key: scaled(entry, factor) for key, entry in value.items()}
    if isinstance(value, tuple):
        entries = [scaled(entry, factor) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    if isinstance(value, int):
        return max(1, round(value * factor)) if value > 0 else value
    return value * factor if isinstance(value, float) else value


def constants() -> dict[str, Any]:
    """The public constants of the policy by name."""
    return {name: value for name, value in vars(policy).items() if name.isupper() and not name.startswith("_")}


def variants(only: list[str]) -> Iterator[tuple[str, str | None, Callable[[], None]]]:
    """A label for each variant, the constant that it changes, if one, and the change, in the order of the policy."""
    for name, value in constants().items():
        if only and name not in only:
            continue
        changed = {"off": not value} if isinstance(value, bool) else {"½": scaled(value, 0.5), "2": scaled(value, 2)}
        if isinstance(value, tuple) and not hasattr(value, "_fields") and len(value) > 1:
            changed["first only"] = value[:1]
        for label, other in changed.items():
            if other != value:
                yield f"{name} × {label}", name, lambda name=name, other=other: setattr(policy, name, other)
    for name, (module, function, other) in SWITCHES.items():
        if not only or name in only:
            yield f"{name} off", None, lambda m=module, f=function, o=other: setattr(import_module(m), f, o)


def measured(change: Callable[[], None], asked: dict[str, Any]) -> dict[str, Any]:
    """One formula in a child process with a change of the policy; refused if the process crashed."""

    def job() -> dict[str, Any]:
        signal.signal(signal.SIGPROF, _timeout)
        change()
        return compiled(asked)

    status, value, seconds, _ = in_child(job, 2 * FORMULA_SECONDS)
    if status != "ok":
        print(value, file=sys.stderr)
        return {"name": asked["name"], "tokens": None, "bound": None, "work": seconds, "read": []}
    found: dict[str, Any] = value
    return found


def _timeout(*_: object) -> None:
    raise TimeoutError


def compared(base: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, Any]:
    """A variant against the baseline: ratios over the formulas that both prove, and the proofs lost and gained."""
    pairs = list(zip(base, found, strict=True))
    both = [(a, b) for a, b in pairs if a["tokens"] is not None and b["tokens"] is not None]
    bounds = [b["bound"] / a["bound"] for a, b in both if a["bound"]]
    return {
        "tokens": sum(b["tokens"] for _, b in both) / max(1, sum(a["tokens"] for a, _ in both)),
        "more tokens": sum(b["tokens"] > a["tokens"] for a, b in both),
        "fewer tokens": sum(b["tokens"] < a["tokens"] for a, b in both),
        "bound": math.exp(sum(map(math.log, bounds)) / max(1, len(bounds))),
        "worst bound": max(bounds, default=1.0),
        "work": sum(b["work"] for _, b in pairs) / max(1e-9, sum(a["work"] for a, _ in pairs)),
        "lost": [a["name"] for a, b in pairs if a["tokens"] is not None and b["tokens"] is None],
        "gained": [a["name"] for a, b in pairs if a["tokens"] is None and b["tokens"] is not None],
    }


def row(label: str, found: dict[str, Any]) -> str:
    """One line of the Markdown table."""
    changes = [f"{100 * (found[key] - 1):+.1f} %" for key in ("tokens", "bound", "work")]
    counts = [f"{found['more tokens']} / {found['fewer tokens']}", f"{found['worst bound']:.2f}"]
    proofs = [str(len(found["lost"])), str(len(found["gained"]))]
    return (
        "| "
        + " | ".join([label, str(found["read"]), changes[0], counts[0], changes[1], counts[1], changes[2], *proofs])
        + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formulas", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--most-work", type=float, default=math.inf, metavar="SECONDS")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    asked = sample(given.formulas, given.kinds)
    taken = [(one, measured(lambda: None, one)) for one in asked]
    asked, base = zip(*((one, was) for one, was in taken if was["work"] <= given.most_work), strict=True)
    proven = [one for one in base if one["tokens"] is not None]
    names = ", ".join(one["name"] for one in base)
    lines = [
        f"Baseline: {len(proven)} of {len(base)} formulas proven, {sum(one['tokens'] for one in proven)} tokens, "
        f"{sum(one['work'] for one in base):.1f} s of work ({names}).\n",
        "| changed | read | tokens | more / fewer | bound | worst bound | work | lost | gained |",
        "| --- |" + " ---: |" * 8,
    ]
    print("\n".join(lines), flush=True)
    rows = {}
    for label, constant, change in variants(given.only):
        pairs = zip(base, asked, strict=True)
        reads = [constant is None or constant in was["read"] for was in base]
        found = [measured(change, one) if read else was for read, (was, one) in zip(reads, pairs, strict=True)]
        rows[label] = compared(base, found) | {"read": sum(reads)}
        lines.append(row(label, rows[label]))
        print(lines[-1], flush=True)
        if given.page:
            PAGE.write_text(HEADER.format(arguments=shlex.join(sys.argv[1:])) + "\n".join(lines) + "\n")
        if given.json is not None:
            given.json.write_text(json.dumps({"baseline": base, "variants": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
