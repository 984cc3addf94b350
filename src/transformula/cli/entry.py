"""The entry point: whatever happens below ends here, in one sentence and an exit code.

0 success · 1 not proven, or not verified · 2 invalid input, or refused by the operating system · 70 an internal
error · 130 interrupted · 141 broken pipe. A traceback is printed with ``--debug`` only.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer

from transformula.cli.app import app
from transformula.cli.interrupting import INTERRUPTED, Interrupted
from transformula.cli.output import Output
from transformula.errors import InputError, TransformulaError

FAULT, CLOSED_PIPE = 70, 141
REPORT = "please report it to the project's issue tracker, with what --debug prints"

#: typer has its own copy of click, or the installed one, by its version: the classes are found through what it exports
_USAGE: Any = typer.BadParameter.__bases__[0]
_CLICK: Any = _USAGE.__bases__[0]


def main() -> None:
    """Run the command line and leave with its exit code."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    output = Output("--json" in arguments)
    debug = len(arguments) < len(sys.argv) - 1
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
        if code == INTERRUPTED:  # click's word for Ctrl-C
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except _CLICK as error:
        return _usage(error, output)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # which click takes for a failure like others
            raise BrokenPipeError from None
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return output.error(Interrupted("interrupted; nothing was written"), INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return output.error(*_sentence(error))


def _sentence(error: Exception) -> tuple[Exception, int]:
    """What to say about an error, and its exit code."""
    if isinstance(error, TransformulaError):
        return error, error.exit_code
    if isinstance(error, MemoryError):
        return InputError("there is not enough memory for this: ask for less at once"), InputError.exit_code
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return InputError(f"the operating system refused: {place}{error.strerror}"), InputError.exit_code
    text = " ".join(str(error).split())[:200]
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return InternalFault(f"internal error in transformula ({said}); {REPORT}"), FAULT


class InternalFault(Exception):
    """A mistake of transformula's own."""


class UsageProblem(InputError):
    """A verb or an option that does not exist, or a value it cannot take."""


def _usage(error: Any, output: Output) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return InputError.exit_code
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    where = f" (see {context.command_path} --help)" if context is not None else ""
    return output.error(UsageProblem(text + where))


def _leave_pipe() -> int:
    """Nobody reads on: what is still buffered must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE
