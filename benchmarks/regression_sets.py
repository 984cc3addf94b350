"""Held-out errors on regression sets that need no download, beside RidgeCV: printed, and written to docs/fitting.md.

Every set is split into training rows (four fifths) and held-out rows, five times, or forty times if it has fewer than a
hundred rows; an entry is the root mean square error on the held-out rows in standard deviations of the target,
averaged over the splits. While defaults were chosen, seed 0 was looked at; what the page shows has another `SEED`.
``python benchmarks/regression_sets.py [NAME ...]`` runs some sets and writes nothing.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import (
    load_diabetes,
    load_linnerud,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_regression,
)
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from transformula.learn import OneLayerTransformerRegressor, PolynomialTransformerRegressor

PAGE = Path(__file__).parent.parent / "docs" / "fitting.md"
SPLITS, MANY_SPLITS = 5, 40
SEED = 2026
ALPHAS = np.logspace(-3, 4, 15)


def plant(rows=9568):
    """A made-up power plant: four correlated measurements, a smooth output and noise."""
    rng = np.random.default_rng(SEED)
    temperature = rng.uniform(2, 37, size=rows)
    vacuum = 30 + 1.1 * temperature + 6 * rng.normal(size=rows)
    pressure = 1020 - 0.3 * temperature + 5 * rng.normal(size=rows)
    humidity = np.clip(95 - 0.8 * temperature + 12 * rng.normal(size=rows), 20, 100)
    output = 495 - 1.7 * temperature - 0.25 * (vacuum - 54) + 0.06 * (pressure - 1013) - 0.15 * (humidity - 73)
    output += 8 * np.tanh((temperature - 15) / 6) * (vacuum - 54) / 20 + 0.002 * (humidity - 73) ** 2
    return np.column_stack([temperature, vacuum, pressure, humidity]), output + 3 * rng.normal(size=rows)


def linnerud():
    """Weight of twenty men from their exercises: little can be learned, much can be overfitted."""
    X, Y = load_linnerud(return_X_y=True)
    return X, Y[:, 0]


SETS = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "linnerud": linnerud,
    "Friedman 1": lambda: make_friedman1(500, noise=1.0, random_state=SEED),
    "Friedman 2": lambda: make_friedman2(500, noise=100.0, random_state=SEED),
    "Friedman 3": lambda: make_friedman3(500, noise=0.1, random_state=SEED),
    "linear": lambda: make_regression(500, 10, noise=50.0, random_state=SEED),
    "plant": plant,
}


def ridge(degree):
    """scikit-learn's leave-one-out ridge over all monomials of a degree."""
    return make_pipeline(StandardScaler(), PolynomialFeatures(degree), StandardScaler(), RidgeCV(ALPHAS))


def models():
    """What is compared: ours, then scikit-learn's."""
    ours = PolynomialTransformerRegressor
    return {
        "auto 3": ours(3),
        "auto 5": ours(5),
        "exact 3": ours(3, "exact"),
        "exact 5": ours(5, "exact"),
        "sparse 3": ours(3, "sparse"),
        "lowrank 3": ours(3, "lowrank"),
        "sgd 3": ours(3, "sgd"),
        "adam 3": ours(3, "adam"),
        "one layer": OneLayerTransformerRegressor(),
        "linear": LinearRegression(),
        "RidgeCV 1": ridge(1),
        "RidgeCV 3": ridge(3),
    }


def measure(X, y):
    """For every model, the error of every split and the longest fit in seconds of processor time."""
    found = {}
    for label, model in models().items():
        errors, longest = [], 0.0
        splits = SPLITS if len(X) >= 100 else MANY_SPLITS
        for train, held in ShuffleSplit(splits, test_size=0.2, random_state=SEED).split(X):
            estimator = clone(model)
            start = time.process_time()
            estimator.fit(X[train], y[train])
            longest = max(longest, time.process_time() - start)
            errors.append(float(np.sqrt(np.mean((estimator.predict(X[held]) - y[held]) ** 2))) / y.std())
        found[label] = np.array(errors), longest
    return found


def table(results, value):
    """A Markdown table: a set a row, a model a column."""
    labels = list(models())
    lines = ["| set | rows | " + " | ".join(labels) + " |", "| --- | ---: |" + " ---: |" * len(labels)]
    for name, (shape, found) in results.items():
        cells = [value(*found[label], found["linear"][0]) for label in labels]
        lines.append(f"| {name} | {shape[0]} × {shape[1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def in_standard_errors(errors, _, linear):
    """How much worse than the linear model on the same splits, in standard errors of the mean difference."""
    worse = errors - linear
    noise = worse.std(ddof=1) / np.sqrt(len(worse))
    return f"{worse.mean() / noise:+.1f}" if noise > 1e-12 else "0"


def replaced(text, mark, content):
    """The page with what stands between a pair of marks exchanged."""
    pattern = re.compile(rf"(<!-- {mark}: [^>]*-->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    return pattern.sub(lambda found: found.group(1) + content + found.group(2), text)


def main():
    """Run the sets named on the command line, or all of them and write the page."""
    warnings.simplefilter("ignore")
    results = {}
    for name in sys.argv[1:] or SETS:
        X, y = SETS[name]()
        results[name] = X.shape, measure(X, y)
        print(f"\n== {name} {X.shape}", flush=True)
        for label, (errors, longest) in results[name][1].items():
            print(f"{label:12}{errors.mean():8.4f} +- {errors.std():.4f}{longest:8.2f} s", flush=True)
    errors = table(results, lambda values, *_: f"{values.mean():.3f}")
    noise = table(results, in_standard_errors)
    seconds = table(results, lambda _, longest, *__: f"{longest:.1f}")
    print(f"\n{errors}\n{noise}\n{seconds}")
    if not sys.argv[1:]:
        text = replaced(replaced(PAGE.read_text(), "errors", errors), "noise", noise)
        PAGE.write_text(replaced(text, "seconds", seconds))


if __name__ == "__main__":
    main()
