"""Find tables of the square on its range, and keep the best of each size in squares.json beside the solver.

Every circuit has squares, all of them in one table (`constructions.circuit_tables`), so they are worth a longer search than a
compile can afford. A table that is there already stays, unless a smaller or a closer one is found.
``python benchmarks/squares.py`` takes some minutes.
"""

from __future__ import annotations

import json

import numpy as np

from transformula.blas_threads import one_thread
from transformula.compiler.circuit_tables import SQUARE_ENDS
from transformula.compiler.tables.smallest_table import THOROUGH, CannotFit, Effort, fit_table
from transformula.compiler.tables.softmax_table import Table
from transformula.compiler.tables.stored_squares import PATH, squares

#: Tolerances tried, from coarse to what no table meets.
GOALS = {"float64": 10.0 ** -np.arange(9, 14.2, 0.1), "float32": 10.0 ** -np.arange(4, 5.4, 0.02)}


def best(tables: list[Table]) -> list[Table]:
    """Smallest first, each at least a tenth closer than those before it."""
    kept: list[Table] = []
    for table in sorted(tables, key=lambda table: (table.size, table.total_error)):
        if not kept or table.total_error < 0.9 * kept[-1].total_error:
            kept.append(table)
    return kept


def main() -> None:
    """Search, and write what is best."""
    found = {dtype: list(tables) for dtype, tables in squares().items()}
    for dtype, goals in GOALS.items():
        for goal in goals:
            for effort in (Effort(), THOROUGH):
                try:
                    with one_thread():
                        table = fit_table(np.square, *SQUARE_ENDS, goal, dtype, linear=False, effort=effort)
                except CannotFit:
                    continue
                found[dtype].append(table)
                print(f"{dtype} {goal:.2g}: {table.size} tokens, {table.total_error:.3g}", flush=True)
    rows = {
        dtype: [
            {
                "slopes": table.slopes.tolist(),
                "offsets": table.offsets.tolist(),
                "values": table.values.tolist(),
                "error": table.error_estimate,
                "rounding": table.rounding_estimate,
            }
            for table in best(tables)
        ]
        for dtype, tables in found.items()
    }
    PATH.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
