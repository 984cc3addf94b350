"""The verbs and their options; how they end is in `entry`."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from transformula.cli.batch_verb import batch_command
from transformula.cli.compare_verb import compare_command
from transformula.cli.explore_verb import explore_command
from transformula.cli.export_verb import export_command
from transformula.cli.fit_verb import fit_command
from transformula.cli.in_context_verb import in_context_command
from transformula.cli.loading import loaded
from transformula.cli.output import Output, check_stdout
from transformula.cli.report_verb import report_command
from transformula.cli.reproduce_verb import reproduce_command
from transformula.cli.working import Force, Jobs, Scheduler, lent_workers
from transformula.compiler.constructions import OFFERED
from transformula.errors import InputError
from transformula.files import STDOUT, write_file

app = typer.Typer(
    name="transformula",
    help="Formulas in, Transformers out, with a proof.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Folder = Annotated[Path, typer.Argument(help="A model folder, as written by compile --out.")]


class DType(str, Enum):
    """Float formats the certificate can speak about."""

    float64 = "float64"
    float32 = "float32"


def parse_shape(text: str | None) -> tuple[int, int] | None:
    """Read 2x1 as two positions with one feature each."""
    if text is None:
        return None
    first, _, second = text.lower().partition("x")
    if not all(re.fullmatch(r"\s*[0-9]{1,6}\s*", part) for part in (first, second)):
        raise InputError(f"cannot read the shape {text[:40]!r}: write positions x features, like 2x1")
    return int(first), int(second)


def _version(value: bool) -> None:
    if value:
        from transformula import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    _: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Formulas in, Transformers out, with a proof."""


# A formula may begin with a minus sign, so what is not an option here is taken as a formula.
@app.command("compile", context_settings={"ignore_unknown_options": True})
def compile_command(
    formulas: Annotated[
        Optional[list[str]], typer.Argument(help="One formula or several (outputs); - reads them from stdin.")
    ] = None,
    *,
    on: Annotated[str, typer.Option(help="The box: 'x=0..2*pi, y1..y9=-3..3'.")],
    file: Annotated[
        Optional[Path],
        typer.Option(help="A text file with a formula on each line; lines that begin with # are skipped."),
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="The formulas are in LaTeX.")] = False,
    eps: Annotated[
        Optional[float],
        typer.Option(
            help="Tolerance to prove on the whole box; default 1e-6, for polynomials the smallest that can be proven."
        ),
    ] = None,
    rel: Annotated[
        Optional[float], typer.Option(help="Tolerance relative to the largest |formula| on the box.")
    ] = None,
    construction: Annotated[
        str,
        typer.Option(
            help=f"Construction to use: auto, {', '.join(OFFERED[:-1])} or {OFFERED[-1]}; yun bounds the mean error."
        ),
    ] = "auto",
    dtype: Annotated[DType, typer.Option(help="Float format of weights and claim.")] = DType.float64,
    multi_head: Annotated[
        bool, typer.Option("--multi-head", help="Compute polynomials in log2(degree) blocks.")
    ] = False,
    layers: Annotated[Optional[int], typer.Option(help="Set to 1 to require a single layer.")] = None,
    shape: Annotated[Optional[str], typer.Option(help="Sequence to sequence: positions x features, like 2x1.")] = None,
    time_limit: Annotated[
        Optional[float], typer.Option(help="Seconds after which the search ends, with the best result proven by then.")
    ] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder to save the model in.")] = None,
    force: Force = False,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Compile a formula into a Transformer and prove how close it is."""
    from transformula.cli.formula_files import given_formulas

    given = given_formulas(formulas or [], file)
    from transformula.api import compile, parsed
    from transformula.cli.interrupting import interruptible
    from transformula.cli.progress_bar import progress_bar
    from transformula.compiler.package import stated
    from transformula.model_folder import check_folder
    from transformula.show.describe import summary

    start = time.perf_counter()
    if latex:
        from transformula.formula.given_box import box_of
        from transformula.formula.latex import texts_of

        given = texts_of(given, box_of(on).variables)
    text = given[0] if len(given) == 1 else given
    shaped = parse_shape(shape)
    if out is not None:
        check_folder(out, stated(parsed(text, on, shaped), shaped), force)
    with lent_workers(jobs, scheduler), progress_bar(quiet=json), interruptible():
        model = compile(text, on, eps, construction, dtype.value, multi_head, layers, shaped, rel, time_limit)
    if out is not None:
        model.save(out, force)
    read = {"read_as": given if latex else None}
    facts = read | summary(model) | {"seconds": round(time.perf_counter() - start, 4)}
    facts["out"] = None if out is None else str(out)
    Output(json).facts(facts, title="compiled", hint="" if out else "give --out FOLDER to keep it")


@app.command()
def verify(
    folder: Folder,
    onnx: Annotated[Optional[Path], typer.Option(help="Also check that an ONNX file is this model.")] = None,
    coq: Annotated[
        bool, typer.Option("--coq", help="Also have Coq check the distance to the formula as a theorem (minutes).")
    ] = False,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Prove a model's claim again from its files alone; exit code 1 if it does not hold."""
    from transformula.cli.progress_bar import progress_bar
    from transformula.proven import stated, verify_folder

    start = time.perf_counter()
    with lent_workers(jobs, scheduler), progress_bar(quiet=json):
        result = verify_folder(folder)
        theorem: dict[str, object] = {}
        if coq and result.verified:
            from transformula.cli.coq_facts import check_theorem

            result, theorem = check_theorem(folder, result, jobs)
    if onnx is not None and result.verified:  # a graph of weights that prove nothing is worth nothing
        from transformula.export.onnx_files import onnx_differences

        reasons = onnx_differences(folder, onnx)
        result = replace(result, verified=not reasons, reasons=reasons)
    facts = {
        "verified": result.verified,
        **stated(result),
        "onnx": None if onnx is None else str(onnx),
        **theorem,
        "reasons": list(result.reasons),
        "seconds": round(time.perf_counter() - start, 4),
    }
    Output(json).facts(facts, title="verified" if result.verified else "does NOT verify")
    if not result.verified:
        raise typer.Exit(1)


@app.command("eval")
def eval_command(
    folder: Folder,
    at: Annotated[Optional[str], typer.Option(help="A point: 'x=1/2, y=pi'.")] = None,
    csv: Annotated[Optional[Path], typer.Option(help="A CSV file with one column per variable.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Where to write the results of --csv; - for stdout.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Compute with exact rational numbers.")] = False,
    json: Json = False,
) -> None:
    """Evaluate a model at a point, or for every row of a CSV file of any size."""
    from transformula.learn.columns import read_columns
    from transformula.proven import stated

    if (at is None) == (csv is None):
        raise InputError("give either --at 'x=...' or --csv FILE --out FILE")
    if csv is not None and out is None:
        raise InputError("--csv needs --out FILE for the results")
    check_stdout(out, json)
    with loaded(folder) as model:
        names = read_columns(folder, model.box.variables)
        if at is not None:
            from transformula.cli.points import evaluate_point

            Output(json).values(evaluate_point(model, at, exact, names))
            return
        from transformula.cli.csv_evaluation import evaluate_csv

        assert csv is not None and out is not None
        rows = evaluate_csv(model, csv, out, exact, json, names)
        bound = {name: value for name, value in stated(model.certificate).items() if name.endswith("bound")}
        facts = {"rows": rows, "out": str(out), **bound, "status": model.status}
        Output(json).facts(facts, title="evaluated", aside=out == STDOUT)


@app.command()
def show(
    folder: Folder,
    svg: Annotated[Optional[Path], typer.Option(help="Draw the circuit into this SVG file; - for stdout.")] = None,
    json: Json = False,
) -> None:
    """Show a model: its claim, its blocks and tokens, and what each of its tables computes."""
    from transformula.show.describe import describe

    with loaded(folder) as model:
        if svg is not None:
            from transformula.show.circuit_drawing import circuit_svg

            check_stdout(svg, json, "--svg")
            write_file(svg, circuit_svg(model))
            if svg == STDOUT:
                return
        sections = describe(model)
    Output(json).sections(sections)


app.command("batch")(batch_command)
app.command("compare", context_settings={"ignore_unknown_options": True})(compare_command)
app.command("explore")(explore_command)
app.command("export")(export_command)
app.command("fit")(fit_command)
app.command("in-context")(in_context_command)
app.command("report")(report_command)
app.command("reproduce")(reproduce_command)
