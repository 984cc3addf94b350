"""docs/trust.md: the kernel's files with their lines, by file and by construction, and the summaries of the last campaigns.

``python benchmarks/trust.py`` counts again and writes the tables between their marks. The campaigns' figures come
from the JSON that ``campaign.py``, ``forging.py``, ``hostile.py`` and ``fuzz/run.py`` write beside the page.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from transformula.kernel.rules.rule_table import RULES
from transformula.proven import trusted_modules

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "trust.md"
KERNEL = HERE.parent / "src" / "transformula" / "kernel"


def kernel_table() -> str:
    """One row for each folder and each file: its lines, and the first sentence of its docstring."""
    rows = ["## The files", "", "| file | lines | what it is |", "| --- | ---: | --- |"]
    folders = [KERNEL, *sorted(path for path in KERNEL.iterdir() if (path / "__init__.py").is_file())]
    for folder in folders:
        counted = {path: path.read_text().count("\n") for path in sorted(folder.glob("*.py"))}
        below = "" if folder == KERNEL else f"{folder.name}/"
        rows.append(f"| **`kernel/{below}`** | **{sum(counted.values())}** | {_said(folder / '__init__.py')} |")
        rows += [
            f"| `{below}{path.stem}` | {n} | {_said(path)} |" for path, n in counted.items() if path.stem != "__init__"
        ]
    total = sum(path.read_text().count("\n") for path in KERNEL.rglob("*.py"))
    return "\n".join([*rows, f"| **all** | **{total}** | |"])


def construction_table() -> str:
    """For each construction, the modules and lines of the kernel that its certificates rest on."""
    rows = ["| construction | modules | lines |", "| --- | ---: | ---: |"]
    alike: dict[tuple[int, int], list[str]] = {}
    for name in RULES:
        modules = trusted_modules(name)
        alike.setdefault((len(modules), sum(modules.values())), []).append(f"`{name}`")
    return "\n".join([*rows, *(f"| {', '.join(names)} | {m} | {n} |" for (m, n), names in alike.items())])


def _said(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return said.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def campaign_table() -> str:
    """What the campaigns counted when they were last run."""
    rows = []
    for name in ("campaign", "forging", "hostile", "fuzz/run"):
        path = PAGE.parent / "trust" / f"{name.partition('/')[0]}.json"
        if path.is_file():
            body = json.loads(path.read_text())
            rows += [f"`python benchmarks/{name}.py`:", "", "| count | number |", "| --- | --- |"]
            rows += [f"| {key.replace('_', ' ')} | {_shown(value)} |" for key, value in body["summary"].items()]
            rows.append("")
    return "\n".join(rows).rstrip()


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(one)}" for key, one in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def replaced(text: str, mark: str, table: str) -> str:
    """The page with a new table between its marks."""
    pattern = re.compile(rf"(<!-- {mark}: [^>]*-->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def main() -> None:
    """Write the page."""
    text = replaced(PAGE.read_text(), "kernel size", kernel_table())
    text = replaced(text, "lines by construction", construction_table())
    PAGE.write_text(replaced(text, "campaigns", campaign_table()))
    print(kernel_table())


if __name__ == "__main__":
    main()
