"""The process that reads LaTeX: one formula on stdin, one JSON object on stdout, under limits of its own."""

from __future__ import annotations

import json
import sys


def _limit() -> None:
    try:
        import resource
    except ImportError:  # not on Windows: whoever asked stops waiting
        return
    from transformula.formulas.latex import CPU_SECONDS, MAX_BYTES

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


def _answer(text: str) -> dict[str, str]:
    from sympy.parsing.latex import parse_latex

    from transformula.errors import InputError
    from transformula.formulas.sympy_trees import from_sympy

    try:
        tree = parse_latex(text, strict=True, backend="antlr")
        return {"text": from_sympy(tree).text}
    except InputError as error:
        return {"error": str(error)}
    except RecursionError:
        return {"error": "it is nested too deeply"}
    except Exception as error:  # the parser's own errors draw the place over several lines
        return {"error": str(error).split("\n")[0][:200] or type(error).__name__}


def main() -> None:
    """Read, answer."""
    _limit()
    print(json.dumps(_answer(sys.stdin.read())))


if __name__ == "__main__":
    main()
