"""The verbs verify, eval and show: what a model folder claims, computes and contains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula import model_folder
from transformula.cli.arguments import Folder, Json, loaded
from transformula.cli.hf_facts import hf_reasons
from transformula.cli.output import Output, check_stdout, progress_bar
from transformula.cli.point_evaluation import CsvJob, evaluate_csv, evaluate_point, evaluate_raw
from transformula.coq.coq_check import NATIVE, prove_folder
from transformula.coq.coq_compiler import find_coqc
from transformula.errors import InputError
from transformula.export.hf_files import hf_bound
from transformula.export.onnx_files import onnx_differences
from transformula.files import STDOUT, write_file
from transformula.kernel.check import Verification
from transformula.kernel.folder.description import CERTIFICATE_FILE, Certificate
from transformula.kernel.folder.model_files import read_text
from transformula.learn.columns import read_columns, read_notes
from transformula.learn.fitted_table import OUTSIDE, TableModel
from transformula.proven import stated, trusted_modules, verify_folder
from transformula.show.architecture import circuit_svg
from transformula.show.describe import describe

#: Cells that were read as empty which are named on the terminal.
_SHOWN = 5
REAL_ARITHMETIC = "proven in real arithmetic, not in floating point"
PROVEN = f"{REAL_ARITHMETIC}: |exact function of the weights - formula| <= eps - rounding, and the formula is defined"


def check_theorem(folder: Path, result: Verification, floats: bool = True) -> tuple[Verification, dict[str, object]]:
    """The verification with Coq's verdict added, and the facts to print."""
    exported = folder / model_folder.COQ_FOLDER
    verdict = prove_folder(folder, exported if exported.is_dir() else None, floats=floats)
    native = sorted({name.partition(".")[0] for name in verdict.axioms} & set(NATIVE))
    reals = [name for name in verdict.axioms if name.partition(".")[0] not in NATIVE]
    facts: dict[str, object] = {
        "coq": PROVEN if verdict.proven else "not accepted",
        "coq_version": find_coqc().version,
        "coq_axioms": [*reals, *(f"{module} (native numbers)" for module in native)],
        "coq_files": {file.name: "cached" if file.cached else round(file.seconds, 2) for file in verdict.files},
        "coq_seconds": verdict.seconds,
        "coq_memory_mb": round(verdict.memory / 1e6),
    }
    return replace(result, verified=verdict.proven, reasons=verdict.reasons), facts


def verify_command(
    folder: Folder,
    onnx: Annotated[Optional[Path], typer.Option(help="Also check that an ONNX file is this model.")] = None,
    hf: Annotated[Optional[Path], typer.Option(help="Also prove that a Hugging Face folder is this model.")] = None,
    coq: Annotated[
        bool,
        typer.Option("--coq", help="Also have Coq check the distance to the formula as a theorem (takes minutes)."),
    ] = False,
    no_floats: Annotated[
        bool, typer.Option("--no-floats", help="With --coq: use no native floats in the proof (slower).")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="List the kernel's modules that the proof rests on, with their line counts."),
    ] = False,
    json: Json = False,
) -> None:
    """Prove a model's claim again from its files alone; exit code 1 if it does not hold."""
    output = Output(json)
    if no_floats and not coq:
        raise InputError("--no-floats is about --coq: give both")
    with progress_bar(quiet=json):
        result = verify_folder(folder)
        theorem: dict[str, object] = {}
        if coq and result.verified:
            result, theorem = check_theorem(folder, result, not no_floats)
    if onnx is not None and result.verified:  # without a proof the graph of the weights is worth nothing
        reasons = onnx_differences(folder, onnx)
        result = replace(result, verified=not reasons, reasons=reasons)
    if hf is not None and result.verified:
        with loaded(folder) as model:
            result = replace(result, reasons=hf_reasons(model, folder, hf))
        result = replace(result, verified=not result.reasons)
    # the claim is a little above what is proven here, for the last digits of other machines
    held = {"claimed_bound": _certificate(folder).bound} if result.verified and result.mean is None else {}
    facts: dict[str, Any] = {
        "verified": result.verified,
        **stated(result),
        **held,
        "onnx": onnx,
        **({"hf": hf, "hf_bound": hf_bound(hf)} if hf is not None and result.verified else {}),
        **theorem,
        "reasons": list(result.reasons),
        "seconds": output.seconds,
    }
    modules = _trusted(folder) if verbose and result.verified else {}
    if modules:
        facts["trusted_lines"] = sum(modules.values())
    if modules and json:
        facts["trusted_modules"] = modules
    said = f"verified; Coq: {REAL_ARITHMETIC}" if coq else "verified"
    output.facts(facts, title=said if result.verified else "does NOT verify")
    if modules and not json:
        output.table(["trusted module", "lines"], [[name, str(lines)] for name, lines in modules.items()])
    if not result.verified:
        raise typer.Exit(1)


def _trusted(folder: Path) -> dict[str, int]:
    """The kernel's modules that a verified folder's certificate rests on, with their lines."""
    return trusted_modules(_certificate(folder).construction)


def _certificate(folder: Path) -> Certificate:
    return Certificate.from_json(read_text(folder, CERTIFICATE_FILE))


def eval_command(
    folder: Folder,
    at: Annotated[Optional[str], typer.Option(help="A point: 'x=1/2, y=pi'.")] = None,
    csv: Annotated[Optional[Path], typer.Option(help="A CSV file with one column per variable.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Where to write the results of --csv; - for stdout.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Compute with exact rational numbers.")] = False,
    outside: Annotated[
        Optional[str],
        typer.Option(help="Rows outside the box: error (the default), nan, clip or allow (the default for a fit)."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the new column; default f, for a fit 'predicted TARGET'.")] = "",
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
        raw = not exact and "preparation" in read_notes(folder)
        fitted = TableModel.load(folder, model) if raw else None
        if at is not None:
            found = None if fitted is None else evaluate_raw(fitted, at)
            Output(json).values(*(found or evaluate_point(model, at, exact, names)))
            return
        assert csv is not None and out is not None
        chosen = outside or ("error" if fitted is None else "allow")
        if chosen not in OUTSIDE or (exact and chosen != "error"):
            raise InputError(f"--outside is one of {', '.join(OUTSIDE)}, and error with --exact; not {chosen}")
        with progress_bar(quiet=json):
            job = CsvJob(model, exact, names, fitted, chosen, name)
            rows = evaluate_csv(job, csv, out)
        bound = {name: value for name, value in stated(model.certificate).items() if name.endswith("bound")}
        facts: dict[str, Any] = {"rows": rows, **job.statuses, "out": out, **bound, "status": model.status}
        if job.misread:
            more = len(job.misread) - _SHOWN
            cut = [*job.misread[:_SHOWN], f"and {more} more"] if more > 0 and not json else job.misread
            facts["read_as_empty"] = cut
        Output(json).facts(facts, title="evaluated", aside=out == STDOUT)


def show_command(
    folder: Folder,
    svg: Annotated[Optional[Path], typer.Option(help="Draw the circuit into this SVG file; - for stdout.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Print everything: no text cut, no row left out.")] = False,
    json: Json = False,
) -> None:
    """Show a model: its claim, its blocks and tokens, and what each of its tables computes."""
    with loaded(folder) as model:
        if svg is not None:
            check_stdout(svg, json, "--svg")
            write_file(svg, circuit_svg(model))
            if svg == STDOUT:
                return
        sections = describe(model, full)
    Output(json).sections(sections)
