"""Times of the regressor's fits beside PolynomialFeatures + RidgeCV and boosted trees at equal degree, side by side.

    OMP_NUM_THREADS=1 python benchmarks/fit_speed.py [--write]

Five-fold cross-validation (one split of the two large sets), processor seconds and held-out R². The last column says how much
larger the mean squared error is than that of the better of linear and polynomial Ridge, in standard errors of the mean
difference over the held-out rows (negative: smaller).
``--write`` puts the table into docs/fitting.md.
"""

import re
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from transformula.learn import PolynomialTransformerRegressor

DOCUMENT = Path(__file__).parent.parent / "docs" / "fitting.md"


def ridge(degree):
    return make_pipeline(
        StandardScaler(), PolynomialFeatures(degree), StandardScaler(), RidgeCV(np.logspace(-3, 5, 17))
    )


def districts(rows=100_000):
    """Made-up house values of districts: eight columns, thresholds, a coast, prices cut off at five."""
    rng = np.random.default_rng(0)
    income, age = rng.gamma(4, 1, rows), rng.integers(1, 53, rows)
    rooms, people = rng.lognormal(1.65, 0.25, rows), rng.lognormal(1, 0.3, rows)
    bedrooms, population = rooms * rng.normal(0.2, 0.02, rows), rng.lognormal(7, 0.7, rows)
    north, east = rng.uniform(32, 42, rows), rng.uniform(-124, -114, rows)
    coast = np.exp(-np.abs(east + 124 - (42 - north)) / 2)
    value = 0.45 * income + 0.9 * coast * np.sqrt(income) - 0.3 * np.log(people) + 0.004 * age + 0.3 * bedrooms
    value += 0.2 * (income > 6) * coast + 0.45 * rng.normal(size=rows)
    columns = [income, age, rooms, bedrooms, population, people, north, east]
    return np.column_stack(columns), np.minimum(value, 5.0)


def wide(rows=20_000, columns=60):
    """Correlated columns: many small effects, ten products, one wave and noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)) + 0.5 * rng.normal(size=(rows, 1))
    y = X @ rng.normal(0, 0.3, columns) + 2 * np.sin(X[:, 3])
    for _ in range(10):
        i, j = rng.choice(columns, 2, replace=False)
        y += 0.5 * X[:, i] * X[:, j]
    return X, y + 2 * rng.normal(size=rows)


def sets():
    diabetes = load_diabetes()
    yield "diabetes", 3, diabetes.data, diabetes.target
    for degree in (3, 5):
        yield "Friedman 1", degree, *make_friedman1(500, noise=1, random_state=0)
    yield "Friedman 2", 3, *make_friedman2(5000, noise=100, random_state=0)
    yield "districts", 3, *districts()
    yield "wide", 2, *wide()


def measured(model, X, y):
    """Processor seconds, mean R² and the squared errors of all held-out rows: five folds, a fifth of a large set."""
    large = len(y) > 10_000
    splits = ShuffleSplit(1, test_size=0.2, random_state=0) if large else KFold(5, shuffle=True, random_state=0)
    begun, scores, errors = time.process_time(), [], []
    for train, held in splits.split(X):
        made = clone(model).fit(X[train], y[train]).predict(X[held])
        scores.append(r2_score(y[held], made))
        errors.append((made - y[held]) ** 2)
    return time.process_time() - begun, np.mean(scores), np.concatenate(errors)


def main():
    warnings.simplefilter("ignore")
    measured(ridge(1), *make_friedman1(50, random_state=0))  # imports
    lines = [
        "| set | rows | degree | auto, s | Ridge, s | times | boosted trees, s | auto R² | Ridge R² | boosted R² | worse, SE |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, degree, X, y in sets():
        ours = measured(PolynomialTransformerRegressor(degree), X, y)
        theirs = measured(ridge(degree), X, y)
        better = min(theirs, measured(ridge(1), X, y), key=lambda one: one[2].mean())
        worse = ours[2] - better[2]
        trees = measured(HistGradientBoostingRegressor(), X, y)
        lines.append(
            f"| {name} | {len(X):,} × {X.shape[1]} | {degree} | {ours[0]:.1f} | {theirs[0]:.1f} | "
            f"{ours[0] / theirs[0]:.1f} | {trees[0]:.1f} | {ours[1]:.3f} | {theirs[1]:.3f} | {trees[1]:.3f} | "
            f"{worse.mean() / (worse.std(ddof=1) / len(worse) ** 0.5):+.1f} |"
        )
        print(lines[-1], flush=True)
    if "--write" in sys.argv:
        text, table = DOCUMENT.read_text(encoding="utf-8"), "\n".join(lines)
        marked = rf"\1{table}\n\2".replace("\\1", "\\g<1>").replace("\\2", "\\g<2>")
        text = re.sub(
            r"(<!-- fit speed: written by benchmarks/fit_speed.py -->\n).*?(<!-- end of fit speed -->)",
            marked,
            text,
            flags=re.S,
        )
        DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
