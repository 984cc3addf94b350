"""The command line: its verbs, and how it ends, which is always one sentence and an exit code.

0 success · 1 not proven, or not verified · 2 invalid input, or refused by the operating system · 70 an internal
error · 130 interrupted · 141 broken pipe. A traceback is printed with ``--debug`` only.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from transformula import __version__
from transformula.cli.output import Interrupted, Output
from transformula.errors import InputError, TransformulaError

#: Verb → the module with its function NAME_command, and its line in the list of verbs.
_VERBS = {
    "compile": ("compile_verb", "Compile a formula into a Transformer and prove how close it is."),
    "verify": ("folder_verbs", "Prove a model's claim again from its files alone; exit code 1 if it does not hold."),
    "eval": ("folder_verbs", "Evaluate a model at a point, or for every row of a CSV file of any size."),
    "show": ("folder_verbs", "Show a model: its claim, its blocks and tokens, and what each of its tables computes."),
    "batch": ("page_verbs", "Compile, verify, export or report many formulas."),
    "compare": (
        "page_verbs",
        "Compile a formula by every construction and compare their sizes; exit code 1 if none is proven.",
    ),
    "explore": ("page_verbs", "Open the explorer: type a formula, move the tolerance, watch the Transformer change."),
    "export": (
        "export_verb",
        "Prove a model's claim, write the model for other tools, and measure how far each is from the reference.",
    ),
    "fit": (
        "fit_verb",
        "Fit a polynomial Transformer to a table, and score it on held-out rows against a linear model.",
    ),
    "in-context": (
        "compile_verb",
        "Write a Transformer that learns from the pairs in its prompt, proven for every prompt in a box.",
    ),
    "report": (
        "page_verbs",
        "Write a self-contained page about a model; exit code 1 if the model does not verify.",
    ),
    "reproduce": ("page_verbs", "Run one of the papers' experiments: a table, a figure and the numbers as JSON."),
}
#: Verbs whose unknown options are taken as formulas, since a formula may begin with a minus sign.
_TAKE_FORMULAS = ("compile", "compare")

#: Exit codes beside those of `TransformulaError`.
_INTERNAL_ERROR = 70
_BROKEN_PIPE = 141
_REPORT = "please report it to the project's issue tracker, with what --debug prints"

_WELCOME = f"""transformula {__version__}: formulas in, Transformers out, with a proof. To try:

  transformula explore
      a page to play with, and a tour of the theorems (Ctrl-C ends it)
  transformula compile "sin(x) + sin(y)" --on "x=0..3, y=0..3" --out sum
      the weights of a Transformer, and a certificate for every point of the box
  transformula show sum
      what each of its heads looks up

transformula --help lists all verbs, and transformula VERB --help explains one."""

#: Click's classes, which typer copies or imports depending on its version.
_UsageError: Any = typer.BadParameter.__bases__[0]
_ClickError: Any = _UsageError.__bases__[0]


class LazyVerbs(TyperGroup):
    """Verbs whose modules are imported when they are run, so that --help answers at once.

    The commands of the group have a name and a line of help only.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb itself, with its options."""
        name, listed, rest = super().resolve_command(ctx, args)
        verb = listed and _verb(str(name))
        _untyped_flags(verb.get_params(ctx) if verb else [])
        return name, verb, rest

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, --help among them."""
        return _untyped_flags(super().get_params(ctx))


def _untyped_flags(options: list[Any]) -> list[Any]:
    """Flags take no value: --help gives them no type."""
    for option in options:
        option.metavar = "" if getattr(option, "is_flag", False) else option.metavar
    return options


def _verb(name: str) -> Any:
    module = import_module(f"transformula.cli.{_VERBS[name][0]}")
    settings = {"ignore_unknown_options": True} if name in _TAKE_FORMULAS else None
    alone = typer.Typer(add_completion=False)
    alone.command(name, context_settings=settings)(getattr(module, f"{name.replace('-', '_')}_command"))
    return get_command(alone)


app = typer.Typer(
    cls=LazyVerbs,
    name="transformula",
    help="Formulas in, Transformers out, with a proof.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for _name, (_, _about) in _VERBS.items():
    app.command(_name, help=_about)(lambda: None)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    _: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Formulas in, Transformers out, with a proof."""
    if context.invoked_subcommand is None:
        typer.echo(_WELCOME)


class InternalFault(Exception):
    """A mistake of transformula's own."""


class UsageProblem(InputError):
    """A verb or an option that does not exist, or a value it cannot take."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    output = Output("--json" in arguments)
    debug = len(arguments) < len(sys.argv) - 1
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # its processes import nothing of a stranger's working directory
    try:
        code = _run(arguments, output, debug)
        sys.stdout.flush()
    except BrokenPipeError:
        code = _leave_pipe()
    except OSError as error:  # the last of the output, written to a disk that is full
        _leave_pipe()
        code = Output(False).error(InputError(f"cannot write to standard output: {error.strerror or error}"))
    sys.exit(code)


def _run(arguments: list[str], output: Output, debug: bool) -> int:
    try:
        code = app(args=arguments, prog_name="transformula", standalone_mode=False)
        if code == Interrupted.exit_code:  # click's answer to Ctrl-C
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except _ClickError as error:
        return _usage(error, output)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # which click treats like any other failure
            raise BrokenPipeError from None
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return output.error(Interrupted("interrupted; nothing was written"), Interrupted.exit_code)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return output.error(*_sentence(error))


def _sentence(error: Exception) -> tuple[Exception, int]:
    """The error to print, and its exit code."""
    if isinstance(error, TransformulaError):
        return error, error.exit_code
    if isinstance(error, MemoryError):
        return InputError("there is not enough memory for this: ask for less at once"), InputError.exit_code
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return InputError(f"the operating system refused: {place}{error.strerror}"), InputError.exit_code
    text = " ".join(str(error).split())[:200]
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return InternalFault(f"internal error in transformula ({said}); {_REPORT}"), _INTERNAL_ERROR


def _usage(error: Any, output: Output) -> int:
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    where = f" (see {context.command_path} --help)" if context is not None else ""
    return output.error(UsageProblem(text + where))


def _leave_pipe() -> int:
    """Discard the rest of the output, which would fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE
