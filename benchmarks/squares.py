"""Find tables of the square on its range, and keep the best of each size in squares.json beside the solver.

Every circuit has squares, all of them in one table (`compiler.circuit_tables`), so they are worth a longer search than a
compile can afford. A table that is there already stays, unless a smaller or a closer one is found.
``python benchmarks/squares.py`` takes some minutes.
"""

from __future__ import annotations

import json

import numpy as np

from transformula.budget import one_thread
from transformula.compiler import policy
from transformula.compiler.evidence.finder import SQUARE_ENDS
from transformula.compiler.tables.one_size import SQUARES, squares
from transformula.compiler.tables.smallest_table import CannotFit, fit_table
from transformula.compiler.tables.softmax_table import FittedTable

#: Tolerances tried, from coarse to what no table meets.
GOALS = {"float64": 10.0 ** -np.arange(9, 14.2, 0.1), "float32": 10.0 ** -np.arange(4, 5.4, 0.02)}
#: The policy of a compile, and one that searches longer.
THOROUGH = {"SIZE_WORK": 5e9, "TABLE_WORK": 3e10, "QUICK_STEPS": 20, "FINALISTS": 10}
EFFORTS = ({name: getattr(policy, name) for name in THOROUGH}, THOROUGH)


def best(tables: list[FittedTable]) -> list[FittedTable]:
    """Smallest first, each at least a tenth closer than those before it."""
    kept: list[FittedTable] = []
    for table in sorted(tables, key=lambda table: (table.size, table.total_error)):
        if not kept or table.total_error < 0.9 * kept[-1].total_error:
            kept.append(table)
    return kept


def main() -> None:
    """Search, and write what is best."""
    found = {dtype: list(tables) for dtype, tables in squares().items()}
    for dtype, goals in GOALS.items():
        for goal in goals:
            for effort in EFFORTS:
                for name, value in effort.items():
                    setattr(policy, name, value)
                try:
                    with one_thread():
                        table = fit_table(np.square, *SQUARE_ENDS, goal, dtype, linear=False)
                except CannotFit:
                    continue
                found[dtype].append(table)
                print(f"{dtype} {goal:.2g}: {table.size} tokens, {table.total_error:.3g}", flush=True)
    rows = {
        dtype: [
            {
                "slopes": table.slopes[0].tolist(),
                "offsets": table.offsets[0].tolist(),
                "values": table.values.tolist(),
                "error": table.error_estimate,
                "rounding": table.rounding_estimate,
            }
            for table in best(tables)
        ]
        for dtype, tables in found.items()
    }
    SQUARES.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
