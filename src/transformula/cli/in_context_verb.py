"""The verb in-context: an algorithm and the size of its prompts in, a proven model out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from transformula.cli.output import Output
from transformula.cli.working import Force

Number = Optional[str]


def in_context_command(
    algorithm: Annotated[str, typer.Argument(help="ridge, lasso, kernel or recurrence.")],
    pairs: Annotated[Optional[int], typer.Option(help="Pairs (x, y) in a prompt.")] = None,
    features: Annotated[Optional[int], typer.Option(help="Features of each x and of the query.")] = None,
    steps: Annotated[
        Optional[int],
        typer.Option(help="Number of steps of the algorithm; ridge without it gives the exact solution to within eps."),
    ] = None,
    penalty: Annotated[Number, typer.Option(help="Penalty of ridge or lasso; 1 by default.")] = None,
    rate: Annotated[Number, typer.Option(help="Step size; by default one that works for every prompt.")] = None,
    bandwidth: Annotated[Number, typer.Option(help="h of the kernel exp(q.x/h); 1 by default.")] = None,
    a: Annotated[Number, typer.Option("--a", help="Largest |a| of a recurrence x -> a*x + b; 1 by default.")] = None,
    b: Annotated[Number, typer.Option("--b", help="Largest |b| of a recurrence; 1 by default.")] = None,
    x: Annotated[Number, typer.Option("--x", help="Largest |x| in a prompt; 1 by default.")] = None,
    y: Annotated[Number, typer.Option("--y", help="Largest |y| in a prompt; 1 by default.")] = None,
    eps: Annotated[
        Optional[float],
        typer.Option(
            help="Tolerance over all prompts; 1e-6 for the exact solution, else the smallest that can be proven."
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Float format of weights and claim: float64 or float32.")] = "float64",
    looped: Annotated[
        bool, typer.Option("--looped", help="Store one set of weights and apply it at every step.")
    ] = False,
    out: Annotated[Optional[Path], typer.Option(help="Folder to save the model in.")] = None,
    force: Force = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Write a Transformer that learns from the pairs of its prompt, proven for every prompt in a box."""
    from transformula.compiler.gallery.prompt_models import in_context
    from transformula.model_folder import check_folder
    from transformula.show.describe import summary

    start = time.perf_counter()
    if out is not None:
        check_folder(out)  # which algorithm it may replace is known once the model is made
    model = in_context(
        algorithm, pairs=pairs, features=features, steps=steps, penalty=penalty, rate=rate, bandwidth=bandwidth,
        a=a, b=b, x=x, y=y, eps=eps, dtype=dtype, looped=looped,
    )  # fmt: skip
    if out is not None:
        model.save(out, force)
    facts = summary(model) | {"seconds": round(time.perf_counter() - start, 4)}
    facts["out"] = None if out is None else str(out)
    Output(json).facts(facts, title="compiled", hint="" if out else "give --out FOLDER to keep it")
