"""The verb compare: one formula by every construction, as a table and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from transformula.cli.output import Output, check_stdout
from transformula.errors import InputError, NotProvenError
from transformula.files import STDOUT, write_file
from transformula.kernel.digits import at_most

if TYPE_CHECKING:
    from transformula.compiler.comparison import Entry

_COLUMNS = ("construction", "layers", "heads", "memory tokens", "parameters", "proven bound", "seconds")


def compare_command(
    formulas: Annotated[list[str], typer.Argument(help="One formula or several (outputs); - reads them from stdin.")],
    *,
    on: Annotated[str, typer.Option(help="The box: 'x=0..2*pi, y1..y9=-3..3'.")],
    eps: Annotated[Optional[float], typer.Option(help="Tolerance for every construction; 1e-6 by default.")] = None,
    rel: Annotated[
        Optional[float], typer.Option(help="Tolerance relative to the largest |formula| on the box.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Float format of weights and claim: float64 or float32.")] = "float64",
    out: Annotated[
        Optional[Path], typer.Option(help="Draw the comparison into a .png or .svg file; - for SVG on stdout.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Compile a formula by every construction and compare their sizes; exit code 1 if none is proven."""
    from transformula.cli.formula_files import given_formulas
    from transformula.cli.progress_bar import progress_bar
    from transformula.compiler.comparison import compare

    form = _format(out)
    check_stdout(out, json)
    given = given_formulas(formulas, None)
    with progress_bar(quiet=json):
        found = compare(given[0] if len(given) == 1 else given, on, eps, rel, dtype)
    if out is not None:
        from transformula.show.comparison_figure import comparison_figure
        from transformula.show.figures import picture

        write_file(out, picture(comparison_figure(found), form))
    if json:
        Output(True).facts(found.to_dict() | {"out": None if out is None else str(out)}, title="")
    elif out != STDOUT:
        Output(False).table(_COLUMNS, [_cells(entry) for entry in found.entries])
    for entry in found.entries if not json else ():
        if entry.refusal:
            typer.echo(f"{entry.name}: {entry.refusal}", err=True)
    if found.smallest is None:
        raise typer.Exit(NotProvenError.exit_code)


def _cells(entry: Entry) -> list[str]:
    sizes = entry.layers, entry.heads, entry.memory_tokens, entry.parameters
    bound = "" if entry.bound is None else at_most(entry.bound, 6) + ("" if entry.norm == "sup" else " (mean)")
    return [entry.name, *("" if size is None else str(size) for size in sizes), bound, f"{round(entry.seconds, 2):g}"]


def _format(out: Path | None) -> str:
    if out is None or out == STDOUT:
        return "svg"
    form = out.suffix.lower().lstrip(".")
    if form not in ("png", "svg"):
        raise InputError(f"cannot draw into {out}: give a file that ends in .png or .svg")
    return form
