"""Learning, side by side with scikit-learn: error without noise, seconds, CPU seconds, peak memory.

Usage: python benchmarks/learning.py [f2|lowrank|wide|real] ... (default: all). Every row is a process of its
own, so that its peak memory is its own; models of one table run one after the other on the same rows.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings

import numpy as np

THREADS = os.environ.get("OMP_NUM_THREADS", "2")


def ridge_target(rng, d, rank, degree):
    """A random sum of `rank` ridge polynomials with variance 15 under a standard normal."""
    W = rng.normal(size=(rank, d))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    C = rng.normal(size=(rank, degree))

    def raw(X):
        return sum(((X @ W.T) ** (s + 1)) @ C[:, s] for s in range(degree))

    size = np.sqrt(15) / raw(rng.normal(size=(20_000, d))).std()
    return lambda X: size * raw(X)


def product_target(rng, d, rank, degree):
    """A random sum of `rank` products of `degree` linear forms, with the same variance."""
    W = rng.normal(size=(degree, rank, d))
    W /= np.linalg.norm(W, axis=2, keepdims=True)

    def raw(X):
        return sum(np.prod([X @ W[s, k] for s in range(degree)], axis=0) for k in range(rank))

    size = np.sqrt(15) / raw(rng.normal(size=(20_000, d))).std()
    return lambda X: size * raw(X)


def draw(target, rows, d, rank, degree, seed):
    from transformula.studies.fang_f2_study import f2, f2_sample

    if target == "f2":
        sample = f2_sample(seed, rows)
        return sample.X, sample.y, sample.X_test, f2(sample.X_test)
    rng = np.random.default_rng(seed)
    f = {"ridge": ridge_target, "product": product_target}[target](rng, d, rank, degree)
    X, X_test = rng.normal(size=(rows, d)), rng.normal(size=(5000, d))
    return X, f(X) + 0.1 * rng.normal(size=rows), X_test, f(X_test)


def make(model, degree):
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    from transformula.learn import PolynomialTransformerRegressor

    if model in ("exact", "sparse", "lowrank", "auto"):
        return PolynomialTransformerRegressor(degree, model)
    return {
        "poly+linear": lambda: make_pipeline(PolynomialFeatures(degree), LinearRegression()),
        "poly+ridge": lambda: make_pipeline(PolynomialFeatures(degree), Ridge(1.0)),
        "hist boosting": lambda: HistGradientBoostingRegressor(random_state=0),
        "mlp": lambda: MLPRegressor(hidden_layer_sizes=(100, 100), early_stopping=True, max_iter=100, random_state=0),
    }[model]()


def job(model, target, rows, d, rank, degree, seed):
    """One measurement in this process."""
    X, y, X_test, f_test = draw(target, rows, d, rank, degree, seed)
    estimator = make(model, degree)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.perf_counter(), time.process_time()
    estimator.fit(X, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    mse = float(np.mean((estimator.predict(X_test) - f_test) ** 2))
    remark = ""
    if hasattr(estimator, "n_terms_"):
        remark = f"{estimator.solver_}, {estimator.n_terms_} numbers"
        if target == "f2" and model == "sparse":
            from transformula.studies.fang_study import TERMS, terms_of

            right = terms_of(estimator.to_formula(1e-4)) == TERMS
            remark += ", exactly the seven terms" if right else ", NOT the seven terms"
    return {"mse": mse, "wall": wall, "cpu": cpu, "peak": peak, "base": base, "remark": remark}


TABLES = {
    "f2": [("f2", 45_000, 10, 0, 5, s, m) for s in (0,) for m in ("sparse", "exact", "poly+linear")]
    + [("f2", 45_000, 10, 0, 5, s, m) for s in (1, 2) for m in ("sparse", "exact")],
    "lowrank": [(t, 10_000, 50, 5, 3, s, "lowrank") for t in ("ridge", "product") for s in range(10)]
    + [(t, 20_000, 50, 5, 3, s, "lowrank") for t in ("ridge", "product") for s in range(3)]
    + [("ridge", 20_000, 50, 5, q, 0, "lowrank") for q in (4, 5)]
    + [("ridge", 10_000, 50, 5, 3, 0, m) for m in ("mlp", "hist boosting", "poly+ridge")],
    "wide": [("ridge", 50_000, 500, 3, 3, 0, "lowrank"), ("product", 50_000, 500, 1, 3, 0, "lowrank")],
}


def measure(name):
    columns = f"{'model':14}{'target':9}{'rows':>7}{'vars':>5}{'rank':>5}{'deg':>4}{'seed':>5}"
    print(f"\n== {name} (OMP_NUM_THREADS={THREADS})", flush=True)
    print(f"{columns}{'test MSE':>11}{'wall s':>8}{'cpu s':>8}{'peak MiB':>9}{'start':>6}  remark", flush=True)
    for t, n, d, r, q, s, m in TABLES[name]:
        command = [sys.executable, __file__, "job", json.dumps([m, t, n, d, r, q, s])]
        environment = os.environ | {"OMP_NUM_THREADS": THREADS, "OPENBLAS_NUM_THREADS": THREADS}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        head = f"{m:14}{t:9}{n:7}{d:5}{r:5}{q:4}{s:5}"
        if done.returncode:
            print(head, "failed:", done.stderr.strip().splitlines()[-1:], flush=True)
            continue
        o = json.loads(done.stdout.splitlines()[-1])
        numbers = f"{o['mse']:11.2e}{o['wall']:8.1f}{o['cpu']:8.1f}{o['peak']:9.0f}{o['base']:6.0f}"
        print(f"{head}{numbers}  {o['remark']}", flush=True)


def real():
    """Cross-validated scores on bundled data; R² for regression, accuracy for classes."""
    from sklearn.datasets import load_diabetes, load_digits, make_friedman1
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    from transformula.learn import PolynomialTransformerClassifier, PolynomialTransformerRegressor

    def scaled(*steps):
        return make_pipeline(StandardScaler(), *steps)

    alphas = np.logspace(-3, 4, 15)
    ours, ours_c = PolynomialTransformerRegressor, PolynomialTransformerClassifier
    regressors = {
        "ours, auto, degree 2": ours(2),
        "ours, auto, degree 3": ours(3),
        "ours, lowrank, degree 2": ours(2, "lowrank"),
        "Ridge": scaled(RidgeCV(alphas)),
        "PolynomialFeatures(2) + Ridge": scaled(PolynomialFeatures(2), StandardScaler(), RidgeCV(alphas)),
        "PolynomialFeatures(3) + Ridge": scaled(PolynomialFeatures(3), StandardScaler(), RidgeCV(alphas)),
        "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
        "MLP": scaled(MLPRegressor(hidden_layer_sizes=(100, 100), max_iter=1000, random_state=0)),
    }
    classifiers = {
        "ours, exact, degree 2": ours_c(2),
        "ours, lowrank, degree 2": ours_c(2, "lowrank"),
        "ours, degree 1": ours_c(1),
        "LogisticRegression": scaled(LogisticRegression(max_iter=1000)),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0, max_iter=50),
        "MLP": scaled(MLPClassifier(hidden_layer_sizes=(100, 100), max_iter=500, random_state=0)),
    }
    folds, strata = KFold(5, shuffle=True, random_state=0), StratifiedKFold(5, shuffle=True, random_state=0)
    data = {
        "diabetes (442 x 10), R2": (*load_diabetes(return_X_y=True), regressors, folds),
        "Friedman #1 (500 x 10, noise 1), R2": (
            *make_friedman1(500, noise=1.0, random_state=0),
            regressors,
            folds,
        ),
        "digits (1797 x 64, 10 classes), accuracy": (*load_digits(return_X_y=True), classifiers, strata),
    }
    warnings.simplefilter("ignore")
    for name, (X, y, models, splits) in data.items():
        print(f"\n== {name}, 5 folds", flush=True)
        for label, model in models.items():
            start = time.perf_counter()
            scores = cross_val_score(model, X, y, cv=splits)
            seconds = time.perf_counter() - start
            print(f"{label:32}{scores.mean():8.4f} +- {scores.std():.4f}{seconds:8.1f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        print(json.dumps(job(*json.loads(sys.argv[2]))))
    else:
        for chosen in sys.argv[1:] or [*TABLES, "real"]:
            real() if chosen == "real" else measure(chosen)
