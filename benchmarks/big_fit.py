"""A table that is not to be held in memory: ``transformula fit`` on Parquet files, in one process and in two workers.

``python benchmarks/big_fit.py [--rows 10000000] [--columns 10] [--degree 3] [--write]`` makes the files in a temporary
folder, fits them twice, prints times, the peak memory of every process and how far the two models are apart, and
removes the files. ``--write`` puts the table into docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
FILE_ROWS = 1_000_000
GROUP_ROWS = 125_000
SPARE = 2.0  # of the disk, in multiples of the data


def make_files(folder: Path, rows: int, columns: int) -> None:
    """Correlated inputs, a cubic target and noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    mix = np.eye(columns) + 0.2 * rng.normal(size=(columns, columns))
    for k, start in enumerate(range(0, rows, FILE_ROWS)):
        n = min(FILE_ROWS, rows - start)
        X = rng.normal(size=(n, columns)) @ mix + 3.0
        y = 0.05 * X[:, 0] ** 3 - 2 * X[:, 1] * X[:, 2 % columns] + X.sum(axis=1) + rng.normal(size=n)
        table = pa.table({**{f"x{i + 1}": X[:, i] for i in range(columns)}, "price": y})
        pq.write_table(table, folder / f"part{k:03}.parquet", row_group_size=GROUP_ROWS)


def peaks(pid: int, found: dict[int, int]) -> None:
    """Peak resident memory, in bytes, of a process and of those it has started."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    if peak := re.search(r"VmHWM:\s+(\d+) kB", status):
        found[pid] = max(found.get(pid, 0), 1024 * int(peak[1]))
    for child in children:
        peaks(int(child), found)


def fit(pattern: str, degree: int, jobs: int, out: Path) -> dict[str, object]:
    """Run the command, and watch the memory of its processes."""
    arguments = ["fit", pattern, "--target", "price", "--degree", str(degree), "--solver", "exact", "--json"]
    command = [sys.executable, "-m", "transformula", *arguments, "--jobs", str(jobs), "--out", str(out)]
    before, start, memory = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), dict[int, int]()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            peaks(process.pid, memory)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate()[0]
    ended.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"fit ended with {process.returncode}: {output}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts = json.loads(output)
    return {
        "jobs": jobs,
        "seconds": time.perf_counter() - start,
        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_bytes": sorted(memory.values(), reverse=True),
        "rows": facts["rows"],
        "held_out_rows": facts["held_out_rows"],
        "terms": facts["terms"],
        "r2_held_out": facts["r2_held_out"],
    }


def gap(one: Path, other: Path) -> float:
    """The largest difference of two models at random points of their box, relative to their largest value."""
    import transformula as tf

    models = [tf.load(folder) for folder in (one, other)]
    low, high = np.array(models[0].box.floats()).T
    points = np.random.default_rng(1).uniform(low, high, size=(2000, len(low)))
    first, second = (np.asarray(model(points)) for model in models)
    return float(np.abs(first - second).max() / np.abs(first).max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--degree", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transformula-big-fit-") as name:
        folder = Path(name)
        size = 8 * given.rows * (given.columns + 1)
        if shutil.disk_usage(folder).free < SPARE * size:
            raise SystemExit(f"{size / 1e9:.1f} GB of data do not fit into {folder.parent}")
        (folder / "data").mkdir()
        make_files(folder / "data", given.rows, given.columns)
        pattern = str(folder / "data" / "*.parquet")
        runs = [fit(pattern, given.degree, jobs, folder / f"model{jobs}") for jobs in (1, 2)]
        apart = gap(folder / "model1", folder / "model2")
    print(json.dumps({**vars(given), "runs": runs, "relative_gap": apart}, indent=1))
    lines = [
        "| processes | seconds | processor seconds | peak memory of each process | held-out R² |",
        "| --- | ---: | ---: | --- | ---: |",
    ]
    for run in runs:
        memory = ", ".join(f"{peak / 1e6:.0f} MB" for peak in run["peak_bytes"])
        who = "one" if run["jobs"] == 1 else "one and two workers"
        times = f"{run['seconds']:.0f} | {run['processor_seconds']:.0f}"
        lines.append(f"| {who} | {times} | {memory} | {run['r2_held_out']:.6f} |")
    lines += [
        "",
        f"{given.rows:,} rows × {given.columns} columns ({size / 1e9:.2f} GB), degree {given.degree}, "
        f"{runs[0]['terms']} terms. Largest relative difference of the two models: {apart:.1e}.",
    ]
    table = "\n".join(lines)
    print(table)
    if given.write:
        begin, end = "<!-- big fit: written by benchmarks/big_fit.py -->", "<!-- end of big fit -->"
        text = PAGE.read_text(encoding="utf-8")
        assert begin in text and end in text
        head, tail = text.split(begin)[0], text.split(end)[1]
        PAGE.write_text(f"{head}{begin}\n{table}\n{end}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
