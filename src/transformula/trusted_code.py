"""The trusted code that a certificate rests on, counted: the kernel's modules that its check imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from transformula.kernel.rules.rule_table import RULES

_PACKAGE = Path(__file__).parent
_CHECK, _RULES = "transformula.kernel.isolation", "kernel.rules.rule_table"


def trusted_modules(construction: str) -> dict[str, int]:
    """The kernel's modules that a check of a construction imports, each with its number of lines.

    Examples
    --------
    >>> found = trusted_modules("polynomial")
    >>> "kernel.rules.polynomial_rule" in found, any("gallery" in name for name in found)
    (True, False)
    """
    others = frozenset(rule.__name__ for rule in RULES.values() if rule is not RULES[construction])
    found: dict[str, int] = {}
    stack = [_CHECK]
    while stack:
        name = stack.pop().removeprefix("transformula.")
        if name not in found:
            text = _path(name).read_text(encoding="utf-8")
            found[name] = text.count("\n")
            left_out = others if name == _RULES else frozenset()
            stack += [each for each in _imports(ast.parse(text), left_out) if each.startswith("transformula.kernel")]
    return dict(sorted(found.items()))


def _path(name: str) -> Path:
    place = _PACKAGE.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _imports(tree: ast.AST, left_out: frozenset[str]) -> Iterator[str]:
    """The modules that code imports when it is run, but for some functions; imports for type checkers are not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and node.name in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (module for module in modules if _path(module.removeprefix("transformula.")).is_file())
            yield node.module
        yield from _imports(node, left_out)
