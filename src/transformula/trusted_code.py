"""The trusted code that a certificate rests on, counted: the kernel's modules that its check imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from transformula.kernel.rules.rule_table import RULES

_PACKAGE = Path(__file__).parent
_CHECK = "transformula.kernel.isolation"


def trusted_modules(construction: str) -> dict[str, int]:
    """The kernel's modules that a check of a construction imports, each with its number of lines.

    Examples
    --------
    >>> found = trusted_modules("polynomial")
    >>> "kernel.rules.polynomial_rule" in found, any("gallery" in name for name in found)
    (True, False)
    """
    found: dict[str, int] = {}
    stack = [_CHECK, f"transformula.kernel.{RULES[construction].module}"]
    while stack:
        name = stack.pop().removeprefix("transformula.")
        if name not in found:
            found[name], imported = _read(name)
            stack += imported
    return dict(sorted(found.items()))


@cache
def _read(name: str) -> tuple[int, list[str]]:
    """The lines of a module, and the modules of the kernel that it imports."""
    text = _path(name).read_text(encoding="utf-8")
    imported = [each for each in _imports(ast.parse(text)) if each.startswith("transformula.kernel")]
    return text.count("\n"), imported


def _path(name: str) -> Path:
    place = _PACKAGE.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _imports(tree: ast.AST) -> Iterator[str]:
    """The modules that a syntax tree imports when it is run; imports for type checkers are not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (module for module in modules if _path(module.removeprefix("transformula.")).is_file())
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from _imports(node)
