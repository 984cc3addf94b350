"""docs/trust.md: the kernel's files with their lines, and the summaries of the last campaigns.

``python benchmarks/trust.py`` counts again and writes the tables between their marks. The campaigns' figures come
from the JSON that ``campaign.py`` and ``forging.py`` write beside the page.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "trust.md"
KERNEL = HERE.parent / "src" / "transformula" / "kernel"


def kernel_table() -> str:
    """One row for each file: its lines, and the first sentence of its docstring."""
    rows = ["## The files", "", "| file | lines | what it is |", "| --- | --- | --- |"]
    total = 0
    for path in sorted(KERNEL.glob("*.py")):
        text = path.read_text()
        lines = text.count("\n")
        total += lines
        said = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `{path.stem}` | {lines} | {said} |")
    return "\n".join([*rows, f"| **all** | **{total}** | |"])


def campaign_table() -> str:
    """What the campaigns counted when they were last run."""
    rows = []
    for name in ("campaign", "forging", "hostile"):
        path = PAGE.parent / "trust" / f"{name}.json"
        if path.is_file():
            body = json.loads(path.read_text())
            rows += [f"`python benchmarks/{name}.py`:", "", "| count | number |", "| --- | --- |"]
            rows += [f"| {key.replace('_', ' ')} | {value} |" for key, value in body["summary"].items()]
            rows.append("")
    return "\n".join(rows).rstrip()


def replaced(text: str, mark: str, table: str) -> str:
    """The page with a new table between its marks."""
    pattern = re.compile(rf"(<!-- {mark}: [^>]*-->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def main() -> None:
    """Write the page."""
    text = replaced(PAGE.read_text(), "kernel size", kernel_table())
    PAGE.write_text(replaced(text, "campaigns", campaign_table()))
    print(kernel_table())


if __name__ == "__main__":
    main()
