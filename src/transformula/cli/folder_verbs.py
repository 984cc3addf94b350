"""The verbs verify, eval and show: what a model folder claims, computes and contains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cli.arguments import Folder, Json, loaded
from transformula.cli.coq_facts import check_theorem
from transformula.cli.output import Output, check_stdout, progress_bar
from transformula.cli.point_evaluation import evaluate_csv, evaluate_point
from transformula.errors import InputError
from transformula.export.onnx_files import onnx_differences
from transformula.files import STDOUT, write_file
from transformula.kernel.folder.certificate import Certificate
from transformula.kernel.folder.description import CERTIFICATE_FILE
from transformula.kernel.folder.model_files import read_text
from transformula.learn.columns import read_columns
from transformula.proven import stated, verify_folder
from transformula.show.architecture import circuit_svg
from transformula.show.describe import describe
from transformula.trusted_code import trusted_modules


def verify_command(
    folder: Folder,
    onnx: Annotated[Optional[Path], typer.Option(help="Also check that an ONNX file is this model.")] = None,
    coq: Annotated[
        bool, typer.Option("--coq", help="Also have Coq check the distance to the formula as a theorem (minutes).")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="List the kernel's modules that the proof rests on, with their lines.")
    ] = False,
    json: Json = False,
) -> None:
    """Prove a model's claim again from its files alone; exit code 1 if it does not hold."""
    output = Output(json)
    with progress_bar(quiet=json):
        result = verify_folder(folder)
        theorem: dict[str, object] = {}
        if coq and result.verified:
            result, theorem = check_theorem(folder, result)
    if onnx is not None and result.verified:  # without a proof the graph of the weights is worth nothing
        reasons = onnx_differences(folder, onnx)
        result = replace(result, verified=not reasons, reasons=reasons)
    facts: dict[str, Any] = {
        "verified": result.verified,
        **stated(result),
        "onnx": onnx,
        **theorem,
        "reasons": list(result.reasons),
        "seconds": output.seconds,
    }
    modules = _trusted(folder) if verbose and result.verified else {}
    if modules:
        facts["trusted_lines"] = sum(modules.values())
    if modules and json:
        facts["trusted_modules"] = modules
    output.facts(facts, title="verified" if result.verified else "does NOT verify")
    if modules and not json:
        output.table(["trusted module", "lines"], [[name, str(lines)] for name, lines in modules.items()])
    if not result.verified:
        raise typer.Exit(1)


def _trusted(folder: Path) -> dict[str, int]:
    """The kernel's modules that a verified folder's certificate rests on, with their lines."""
    return trusted_modules(Certificate.from_json(read_text(folder, CERTIFICATE_FILE)).construction)


def eval_command(
    folder: Folder,
    at: Annotated[Optional[str], typer.Option(help="A point: 'x=1/2, y=pi'.")] = None,
    csv: Annotated[Optional[Path], typer.Option(help="A CSV file with one column per variable.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Where to write the results of --csv; - for stdout.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Compute with exact rational numbers.")] = False,
    json: Json = False,
) -> None:
    """Evaluate a model at a point, or for every row of a CSV file of any size."""
    if (at is None) == (csv is None):
        raise InputError("give either --at 'x=...' or --csv FILE --out FILE")
    if csv is not None and out is None:
        raise InputError("--csv needs --out FILE for the results")
    check_stdout(out, json)
    with loaded(folder) as model:
        names = read_columns(folder, model.box.variables)
        if at is not None:
            Output(json).values(*evaluate_point(model, at, exact, names))
            return
        assert csv is not None and out is not None
        with progress_bar(quiet=json):
            rows = evaluate_csv(model, csv, out, exact, names)
        bound = {name: value for name, value in stated(model.certificate).items() if name.endswith("bound")}
        facts = {"rows": rows, "out": out, **bound, "status": model.status}
        Output(json).facts(facts, title="evaluated", aside=out == STDOUT)


def show_command(
    folder: Folder,
    svg: Annotated[Optional[Path], typer.Option(help="Draw the circuit into this SVG file; - for stdout.")] = None,
    json: Json = False,
) -> None:
    """Show a model: its claim, its blocks and tokens, and what each of its tables computes."""
    with loaded(folder) as model:
        if svg is not None:
            check_stdout(svg, json, "--svg")
            write_file(svg, circuit_svg(model))
            if svg == STDOUT:
                return
        sections = describe(model)
    Output(json).sections(sections)
