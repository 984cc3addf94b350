"""Ablation of the compiler's constants: each halved and doubled, each heuristic off, against the baseline.

``python benchmarks/ablation.py OUT.jsonl [--only NAME ...] [--page]`` compiles a fixed sample (`SAMPLE`: cases in both
formats, random formulas, tables that are hard to fit, formulas that are refused, the gallery), adds a line to OUT.jsonl
for each variant as soon as it is measured, and goes on where that file ends; ``--page`` writes docs/ablation.md from it.
The constants are those of `compiler/policy.py` and the numbers at the top of the other modules of the compiler.

Each compilation runs in a process of its own. A formula is compiled again only if its search reads the constant that
changes, and with stored tables where the constant has no part in fitting them (their work counts all the same). Work is
the deterministic count of `transformula.budget`, so that the table is the same on every machine.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

sys.path.append(str(Path(__file__).parent))
import transformula as tf
from campaign import in_child
from side_by_side import HERE, questions
from transformula import budget
from transformula.compiler import policy
from transformula.errors import TransformulaError

PAGE = HERE.parent / "docs" / "ablation.md"
COMPILER = Path(policy.__file__).parent
FORMULA_SECONDS = 60  # processor time of one formula
#: Cases of formulas.csv by format, and seeds of the campaign.
CASES = {"float64": ("I.43.16", "I.27.6", "sqrt", "tanh50"), "float32": ("I.18.4",)}
SEEDS = (3, 7, 11)
#: Formula, box and options.
OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    ("log(x)", "x=0.01..1", {"eps": 1e-9}),
    ("asin(x)", "x=-0.99..0.99", {"eps": 1e-8}),
    ("acos(x)", "x=0..0.9", {"eps": 1e-9}),
    ("1/(1+25*x**2)", "x=-1..1", {"eps": 1e-9}),
    ("sin(60*x)", "x=0..1", {"eps": 1e-5}),
    ("log(x)", "x=0.1..10", {"eps": 1e-6, "dtype": "float32"}),
    ("sin(x*y)", "x=0..1, y=0..1", {"eps": 0.05, "construction": "partition"}),
    ("exp(x)", "x=0..1", {"eps": 1e-6, "construction": "corollary"}),
    ("x*y", "x=0..1, y=0..1", {"eps": 0.1, "construction": "yun"}),
    ("exp(x)", "x=0..1", {"eps": 1e-4, "construction": "local-polynomials"}),
    ("x*y", "x=0..1, y=0..1", {"eps": 0.05, "construction": "attention-only"}),
    ("sin(x)*y", "x=0..3, y=0..1", {"eps": 1e-3, "construction": "lookup"}),
]
TABLES = "transformula.compiler.tables."
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
HEADER = """# What the constants of the search buy

One constant of the compiler halved or doubled at a time, or one heuristic of the table fitter switched off, against the
baseline. Measured and written by `python benchmarks/ablation.py OUT.jsonl --page`, constants from `compiler/policy.py`
first, numbers at the top of the compiler's other modules after them.

- *read*: how many of the formulas read the constant; the others are not compiled again.
- *tokens*: memory tokens of all formulas that both prove; *more / fewer*: how many formulas need more, or fewer.
- *bound*: geometric mean of the proven bounds over the baseline's, refusals' best bounds included; *worst bound*: the
  largest of these ratios.
- *work*: the deterministic count of `transformula.budget`, the same on every machine; it includes refusals.
- *lost*, *gained*: formulas whose proof is lost, or found in addition.

Rows are added as they are measured, and the script goes on where its file of results ends: constants that are named
nowhere on this page were not reached yet. The sample is small: a constant that changes nothing here may matter
elsewhere, so each removal was judged by its meaning as well. Earlier, single constants that looked idle in 30 formulas
held a partition's proof on another machine's NumPy, or tables of asin, acos, log and 1/u at 1e-6 to
1e-11.

Constants are removed, or made one, by a trial on 114 formulas: the cases in both formats, 28 seeds of the campaign,
tables at 1e-6 to 1e-11, refusals and the gallery. Kept after such a trial, with what it cost otherwise: HOPELESS as WITHIN_REACH
(tanh50: 10 tokens for 2), PLAIN_LOGS as 2 (I.50.26: 28 for 19), NEIGHBOURS and WARM_STARTS as FINALISTS (asin at 1e-8: 25
for 21), STALL as QUICK_STEPS (31 for 21), one MINOR_SHARE for RARE_SHARE too (bounds + 3 %), FLOW_PARTS as MOST_PIECES
(borehole in float32: + 2.5 %), PARTITION_ROUNDS as MOST_ROUNDS (50 times the work).

"""


def sample() -> list[dict[str, Any]]:
    """The formulas, boxes and options that every variant is judged by."""
    known = {asked["name"]: asked for asked in questions(max(SEEDS) + 1, None)}
    names = [f"{case} {dtype}" for dtype, cases in CASES.items() for case in cases] + [f"seed {k}" for k in SEEDS]
    found = [known[name] for name in names]
    for formula, box, options in OTHERS:
        said = " ".join(str(value) for value in options.values())
        found.append({"name": f"{formula} {said}", "formula": formula, "on": box, "options": options})
    return found


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


class Constant:
    """A number, or several, at the top of a module of the compiler."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self.module, self.name, self.value = module, name, getattr(module, name)
        where = module.__name__.removeprefix("transformula.compiler.")
        self.in_policy = module is policy
        self.label = name if self.in_policy else f"{where}.{name}"
        users = [path for path in (COMPILER / "tables").glob("*.py") if f"policy.{name}" in path.read_text()]
        self.fits = bool(users) if self.in_policy else where.startswith("tables.")  # whether tables depend on it

    def variants(self) -> Iterator[tuple[str, Any]]:
        """Labels and other values."""
        value = self.value
        changed = {"½": scaled(value, 0.5), "2": scaled(value, 2)}
        if isinstance(value, tuple) and len(value) > 1:
            changed["first only"] = value[:1]
        yield from ((f"{self.label} × {how}", other) for how, other in changed.items() if other != value)

    def change(self, other: Any) -> None:
        """Give it another value, in all modules that have imported it too."""
        for name, module in [*sys.modules.items()]:
            if name.startswith("transformula.compiler") and vars(module).get(self.name) is self.value:
                setattr(module, self.name, other)


def constants() -> list[Constant]:
    """Those of the policy, then the numbers of the other modules, in the order of the files."""
    found = [Constant(policy, name) for name in vars(policy) if name.isupper()]
    for path in sorted(COMPILER.rglob("*.py")):
        where = ".".join(path.relative_to(COMPILER).with_suffix("").parts).removesuffix(".__init__")
        if path.name in ("policy.py", "__init__.py"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    module = import_module(f"transformula.compiler.{where}")
                    if isinstance(name, ast.Name) and numeric(getattr(module, name.id)):
                        found.append(Constant(module, name.id))
    return found


def numeric(value: Any) -> bool:
    """Whether a value is a number or a tuple of numbers."""
    if isinstance(value, tuple):
        return bool(value) and all(map(numeric, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def measured(change: Callable[[], None], asked: dict[str, Any], store: str) -> dict[str, Any]:
    """One formula in a child process with a change of the compiler; refused if the process crashed."""

    def job() -> dict[str, Any]:
        signal.signal(signal.SIGPROF, _timeout)
        os.environ["TRANSFORMULA_CACHE"] = store
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
    refused = [(a, b) for a, b in pairs if a["tokens"] is None and b["tokens"] is None]
    bounds = [b["bound"] / a["bound"] for a, b in both + refused if a["bound"] and b["bound"]]
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


def same(found: dict[str, Any]) -> bool:
    """Whether a variant changed no model and no bound, and hardly any work."""
    exact = found["tokens"] == 1 and not (found["more tokens"] or found["lost"] or found["gained"])
    return (
        exact and abs(found["bound"] - 1) < 1e-9 and found["worst bound"] < 1.000001 and abs(found["work"] - 1) < 0.02
    )


def row(label: str, found: dict[str, Any]) -> str:
    """One line of the Markdown table."""
    changes = [f"{100 * (found[key] - 1):+.1f} %" for key in ("tokens", "bound", "work")]
    counts = [f"{found['more tokens']} / {found['fewer tokens']}", f"{found['worst bound']:.2f}"]
    proofs = [str(len(found["lost"])), str(len(found["gained"]))]
    cells = [label, str(found["read"]), changes[0], counts[0], changes[1], counts[1], changes[2], *proofs]
    return "| " + " | ".join(cells) + " |"


def code() -> str:
    """A hash of the compiler's sources, which tells a file of results of other code apart."""
    digest = hashlib.sha256()
    for path in sorted(COMPILER.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def page(lines: list[dict[str, Any]]) -> str:
    """The page of all results: variants that changed something in a table, and the names of the others."""
    first, rows = lines[0], {line["label"]: line["found"] for line in lines[1:]}
    base = first["baseline"]
    proven = [one for one in base if one["tokens"] is not None]
    names = ", ".join(f"`{one['name']}`" for one in base)
    said = (
        f"Baseline (compiler {first['code']}, transformula {tf.__version__}): {len(proven)} of {len(base)} formulas proven, "
        f"{sum(one['tokens'] for one in proven)} tokens, {sum(one['work'] for one in base):.1f} s of work ({names})."
    )
    table = ["| changed | read | tokens | more / fewer | bound | worst bound | work | lost | gained |"]
    table += ["| --- |" + " ---: |" * 8, *(row(label, found) for label, found in rows.items() if not same(found))]
    idle = [label for label, found in rows.items() if found["read"] and same(found)]
    unread = [label for label, found in rows.items() if not found["read"]]
    ends = [
        f"## Read, without any effect here\n\n{', '.join(idle)}",
        f"## Read by none of these formulas\n\n{', '.join(unread)}",
    ]
    return HEADER + "\n\n".join([said, "\n".join(table), *ends]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if lines and lines[0]["code"] != code():
        sys.exit(f"{given.out} holds results of other code ({lines[0]['code']}, not {code()}): choose another file")
    asked = sample()
    os.environ["TRANSFORMULA_CACHE"] = "off"
    for warm in ("lookup", "circuit"):  # imports what the children would import one by one
        tf.compile("sin(x)*y", on="x=0..1, y=0..1", eps=0.1, construction=warm)
    with tempfile.TemporaryDirectory() as store, given.out.open("a") as out:

        def add(line: dict[str, Any]) -> None:
            lines.append(line)
            out.write(json.dumps(line) + "\n")
            out.flush()
            if given.page:
                PAGE.write_text(page(lines), encoding="utf-8")

        if not lines:
            add({"code": code(), "baseline": [measured(lambda: None, one, "off") for one in asked]})
        base, done = lines[0]["baseline"], {line.get("label") for line in lines}
        for label, constant, change in changes():
            if label in done or (given.only and label.partition(" ")[0] not in given.only):
                continue
            read = [constant is None or not constant.in_policy or constant.name in was["read"] for was in base]
            fits = constant is None or constant.fits
            pairs = zip(read, base, asked, strict=True)
            found = [measured(change, one, "off" if fits else store) if it else was for it, was, one in pairs]
            add({"label": label, "found": compared(base, found) | {"read": sum(read)}, "each": found})
            print(row(label, lines[-1]["found"]), lines[-1]["found"]["lost"], flush=True)
    if given.page:
        PAGE.write_text(page(lines), encoding="utf-8")


def changes() -> Iterator[tuple[str, Constant | None, Callable[[], None]]]:
    """A label for each variant, its constant, if it is one, and the change."""
    for constant in constants():
        for label, other in constant.variants():
            yield label, constant, lambda constant=constant, other=other: constant.change(other)
    for name, (module, function, other) in SWITCHES.items():
        yield f"{name} off", None, lambda m=module, f=function, o=other: setattr(import_module(m), f, o)


if __name__ == "__main__":
    main()
