"""The verbs compile and in-context: a formula or an algorithm in, a proven model out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.api import compile
from transformula.cli.arguments import (
    DTYPE,
    FORMULAS,
    DType,
    Force,
    Jobs,
    Json,
    ModelOut,
    On,
    Relative,
    Scheduler,
    given_formulas,
    lent_workers,
)
from transformula.cli.output import Interrupted, Output, progress_bar
from transformula.compiler.certify import stated
from transformula.compiler.constructions import OFFERED
from transformula.compiler.driver import parse_formula
from transformula.compiler.gallery.prompt_models import in_context
from transformula.errors import InputError, SearchInterrupted
from transformula.formula.constants import as_box
from transformula.formula.given_box import box_and_constants
from transformula.formula.latex import texts_of
from transformula.formula.notations import names_not_read
from transformula.model import Model
from transformula.model_folder import check_folder
from transformula.show.describe import summary

_CONSTRUCTIONS = f"auto, {', '.join(OFFERED[:-1])} or {OFFERED[-1]}"
Eps = Annotated[
    Optional[float],
    typer.Option(
        help="Tolerance to prove on the whole box. Default: 1e-6, or that share of the largest value, rounded "
        "down to a power of ten, if that is above 1000 or below 0.001; for polynomials the smallest that can be proven."
    ),
]
FromFile = Annotated[
    Optional[Path],
    typer.Option(
        help="Text file with one formula or named value per line, settings like 'on: x=0..1', comments after #."
    ),
]
TimeLimit = Annotated[
    Optional[float], typer.Option(help="Seconds after which the search ends with the best result proven so far.")
]


def compile_command(
    formulas: Annotated[Optional[list[str]], FORMULAS] = None,
    *,
    on: Annotated[Optional[str], On] = None,
    file: FromFile = None,
    let: Annotated[
        Optional[list[str]], typer.Option(help="Named value for the formulas, like 'd1=log(S/K)' (repeatable).")
    ] = None,
    const: Annotated[
        Optional[str], typer.Option(help="Physical constants for the formulas, like 'c,kB' (SI units).")
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="The formulas are in LaTeX.")] = False,
    eps: Eps = None,
    rel: Relative = None,
    pointwise: Annotated[
        Optional[float], typer.Option(help="Tolerance relative to |formula| at every point of the box, proven as such.")
    ] = None,
    construction: Annotated[
        Optional[str],
        typer.Option(help=f"{_CONSTRUCTIONS}; default: auto. yun bounds the mean error."),
    ] = None,
    dtype: Annotated[Optional[str], DTYPE] = None,
    multi_head: Annotated[
        bool, typer.Option("--multi-head", help="Compute polynomials in log2(degree) blocks.")
    ] = False,
    layers: Annotated[Optional[int], typer.Option(help="Set to 1 to require a single layer.")] = None,
    shape: Annotated[Optional[str], typer.Option(help="Sequence to sequence: positions x features, like 2x1.")] = None,
    time_limit: TimeLimit = None,
    out: ModelOut = None,
    force: Force = False,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Compile a formula into a Transformer and prove how close it is."""
    output = Output(json)
    source = given_formulas(formulas or [], file)
    given, settings = source.formulas, source.settings
    box = _box(on or settings.get("on"), const)
    if eps is None and rel is None and pointwise is None:
        eps, rel, pointwise = (source.number(name) for name in ("eps", "rel", "pointwise"))
    if latex:
        varying, constants = box_and_constants(box)
        given = texts_of(given, (*varying.variables, *constants))
    text = [*(let or []), *given] if let or len(given) > 1 else given[0]
    sequence = _parse_shape(shape)
    construction = construction or settings.get("construction", "auto")
    dtype = dtype or settings.get("dtype", "float64")
    if out is not None:
        check_folder(out, stated(parse_formula(text, box, sequence), sequence), force)
    try:
        with lent_workers(jobs, scheduler), progress_bar(quiet=json):
            model = compile(
                text, box, eps, construction, dtype, multi_head, layers, sequence, rel, time_limit, pointwise
            )
    except SearchInterrupted as stop:
        raise Interrupted(f"{stop}; nothing was written") from None
    first = {"read_as": given if latex else None, "unused_values": names_not_read(text)}
    _finish(model, out, force, output, first)


def _box(on: str | None, const: str | None) -> str:
    """The box of the command line or of the file, with the constants that were asked for."""
    if on is None:
        raise InputError("the box is missing: give --on 'x=0..1', or a line 'on: x=0..1' in the file")
    constants = as_box(const) if const else {}
    return ", ".join([on, *(f"{name}={value}" for name, value in constants.items())])


def _parse_shape(text: str | None) -> tuple[int, int] | None:
    """Read 2x1 as two positions with one feature each."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]{1,6})\s*x\s*([0-9]{1,6})\s*", text.lower())
    if found is None:
        raise InputError(f"cannot read the shape {text[:40]!r}: write positions x features, like 2x1")
    return int(found[1]), int(found[2])


def in_context_command(
    algorithm: Annotated[str, typer.Argument(help="ridge, lasso, kernel or recurrence.")],
    pairs: Annotated[Optional[int], typer.Option(help="Pairs (x, y) in a prompt.")] = None,
    features: Annotated[Optional[int], typer.Option(help="Features of each x and of the query.")] = None,
    steps: Annotated[
        Optional[int],
        typer.Option(help="Number of steps of the algorithm; ridge without it gives the exact solution to within eps."),
    ] = None,
    penalty: Annotated[Optional[str], typer.Option(help="Penalty of ridge or lasso; 1 by default.")] = None,
    rate: Annotated[Optional[str], typer.Option(help="Step size; by default one that works for every prompt.")] = None,
    bandwidth: Annotated[Optional[str], typer.Option(help="h of the kernel exp(q.x/h); 1 by default.")] = None,
    a: Annotated[
        Optional[str], typer.Option("--a", help="Largest |a| of a recurrence x -> a*x + b; 1 by default.")
    ] = None,
    b: Annotated[Optional[str], typer.Option("--b", help="Largest |b| of a recurrence; 1 by default.")] = None,
    x: Annotated[Optional[str], typer.Option("--x", help="Largest |x| in a prompt; 1 by default.")] = None,
    y: Annotated[Optional[str], typer.Option("--y", help="Largest |y| in a prompt; 1 by default.")] = None,
    eps: Annotated[
        Optional[float],
        typer.Option(
            help="Tolerance over all prompts; 1e-6 for the exact solution, else the smallest that can be proven."
        ),
    ] = None,
    dtype: DType = "float64",
    looped: Annotated[
        bool, typer.Option("--looped", help="Store one set of weights and apply it at every step.")
    ] = False,
    out: ModelOut = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a Transformer that learns from the pairs in its prompt, proven for every prompt in a box."""
    output = Output(json)
    if out is not None:
        check_folder(out)  # the algorithm that may be replaced is known once the model is made
    model = in_context(
        algorithm, pairs=pairs, features=features, steps=steps, penalty=penalty, rate=rate, bandwidth=bandwidth,
        a=a, b=b, x=x, y=y, eps=eps, dtype=dtype, looped=looped,
    )  # fmt: skip
    _finish(model, out, force, output, {})


def _finish(model: Model, out: Path | None, force: bool, output: Output, first: dict[str, Any]) -> None:
    """Save the model if a folder was given, and print its facts after the first ones."""
    if out is not None:
        model.save(out, force)
    facts = first | summary(model) | {"seconds": output.seconds, "out": out}
    output.facts(facts, title="compiled", hint="" if out else "give --out FOLDER to keep it")
