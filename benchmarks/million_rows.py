"""A million raw rows with 25 columns, six of them text, from Parquet: seconds and peak memory of ``transformula fit``.

OMP_NUM_THREADS=1 python benchmarks/million_rows.py [ROWS]
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write(path, rows):
    """Row groups of 50,000: numbers with gaps, levels of 3 to 500, dates."""
    rng = np.random.default_rng(0)
    level = rng.normal(0, 3, 500)
    writer = None
    for start in range(0, rows, 50_000):
        n = min(50_000, rows - start)
        X = rng.normal(size=(n, 18)).astype(np.float64)
        street, city = rng.integers(0, 500, n), rng.integers(0, 8, n)
        table = {f"x{k}": np.where(rng.random(n) < 0.02, np.nan, X[:, k]) for k in range(18)}
        table["street"] = [f"street {k}" for k in street]
        for k, count in enumerate((8, 3, 5, 10, 15)):
            codes = city if not k else rng.integers(0, count, n)
            table[f"kind{k}"] = [f"level {c}" for c in codes]
        table["day"] = np.datetime64("2020-01-01") + rng.integers(0, 1500, n)
        table["y"] = 2 * X[:, 0] + X[:, 1] * X[:, 2] + level[street] + (city == 3) * X[:, 3] + rng.normal(0, 1, n)
        group = pa.table(table)
        writer = writer or pq.ParquetWriter(path, group.schema)
        writer.write_table(group)
    writer.close()


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.parquet"
        write(path, rows)
        begun = time.perf_counter()
        call = [sys.executable, "-m", "transformula", "fit", str(path), "--target", "y", "--degree", "2", "--json"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        if done.returncode:
            sys.exit(done.stderr)
        facts = json.loads(done.stdout)
        print(f"{rows:,} rows x 25 columns: {seconds:.0f} s, peak {peak:.2f} GiB, R² {facts['r2_held_out']:.3f}, "
              f"{facts['solver']}, {facts['terms']} terms")  # fmt: skip


if __name__ == "__main__":
    main()
