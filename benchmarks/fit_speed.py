"""Times of the regressor's fits beside PolynomialFeatures + RidgeCV and boosted trees at equal degree, side by side.

    OMP_NUM_THREADS=1 python benchmarks/fit_speed.py [--write]

Five-fold cross-validation, processor seconds and held-out R². ``--write`` puts the table into docs/fitting.md.
"""

import re
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from transformula.learn import PolynomialTransformerRegressor

DOCUMENT = Path(__file__).parent.parent / "docs" / "fitting.md"


def ridge(degree):
    return make_pipeline(
        StandardScaler(), PolynomialFeatures(degree), StandardScaler(), RidgeCV(np.logspace(-3, 5, 17))
    )


def sets():
    diabetes = load_diabetes()
    yield "diabetes", 3, diabetes.data, diabetes.target
    for degree in (3, 5):
        yield "Friedman 1", degree, *make_friedman1(500, noise=1, random_state=0)
    yield "Friedman 2", 3, *make_friedman2(5000, noise=100, random_state=0)


def measured(model, X, y):
    begun = time.process_time()
    scores = cross_val_score(model, X, y, cv=5)
    return time.process_time() - begun, scores.mean()


def main():
    warnings.simplefilter("ignore")
    measured(ridge(1), *make_friedman1(50, random_state=0))  # imports
    lines = [
        "| set | rows | degree | auto, s | Ridge, s | times | boosted trees, s | auto R² | Ridge R² | boosted R² |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, degree, X, y in sets():
        ours = measured(PolynomialTransformerRegressor(degree), X, y)
        theirs = measured(ridge(degree), X, y)
        trees = measured(HistGradientBoostingRegressor(), X, y)
        lines.append(
            f"| {name} | {len(X):,} × {X.shape[1]} | {degree} | {ours[0]:.1f} | {theirs[0]:.1f} | "
            f"{ours[0] / theirs[0]:.1f} | {trees[0]:.1f} | {ours[1]:.3f} | {theirs[1]:.3f} | {trees[1]:.3f} |"
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
