"""Generators of five messy tables: text, dates, gaps, many levels, duplicate and constant columns, odd headers."""

import csv
import datetime

import numpy as np


def _gaps(rng, values, share):
    return ["" if gap else value for value, gap in zip(values, rng.random(len(values)) < share, strict=True)]


def _dates(rng, count, form="%Y-%m-%d"):
    first = datetime.date(2015, 1, 1)
    return [first + datetime.timedelta(days=int(k)) for k in rng.integers(0, 3000, count)], form


def homes(rows=600):
    """A price by size, city and age: text, an ISO date, gaps, a constant, a duplicate and an id."""
    rng = np.random.default_rng(1)
    size, age = rng.uniform(30, 200, rows).round(1), rng.integers(0, 80, rows)
    city = rng.choice(["Paris", "Rome", "Wien", "Köln"], rows)
    sold, form = _dates(rng, rows)
    price = 1000 * size * (1 + (city == "Paris")) - 3 * size * age + rng.normal(0, 5000, rows)
    table = {
        "id": [f"home-{k}" for k in range(rows)],
        "city": city,
        "sq m": _gaps(rng, size, 0.03),
        "age": age,
        "age again": age,
        "country": ["EU"] * rows,
        "sold on": [day.strftime(form) for day in sold],
        "garden": _gaps(rng, rng.choice(["yes", "no"], rows), 0.1),
    }
    noise = {f"noise {k}": rng.normal(size=rows).round(3) for k in range(14)}
    return table | noise, "price", price.round(0)


def shops(rows=3000):
    """Sales in shops of 200 streets, which need the mean of the target; German dates; a semicolon file."""
    rng = np.random.default_rng(2)
    street = rng.integers(0, 200, rows)
    level = rng.normal(0, 30, 200)
    staff, opened = rng.integers(1, 20, rows), _dates(rng, rows)[0]
    sales = level[street] + 5.0 * staff + rng.normal(0, 3, rows) + 100
    table = {
        "Straße": [f"Straße {k}" for k in street],
        "staff": _gaps(rng, staff, 0.05),
        "opened": [day.strftime("%d.%m.%Y") for day in opened],
        "kind": _gaps(rng, rng.choice(["food", "books", "toys"], rows), 0.02),
    }
    noise = {f"survey {k}": _gaps(rng, rng.normal(size=rows).round(2), 0.02) for k in range(18)}
    return table | noise, "sales", sales.round(2)


def customers(rows=900):
    """Whether a customer leaves, as text: a classifier; numbers with texts among them."""
    rng = np.random.default_rng(3)
    months, calls = rng.integers(1, 60, rows), rng.poisson(2, rows)
    plan = rng.choice(["basic", "plus", "pro"], rows)
    odds = 1.5 - 0.08 * months + 0.9 * calls - 1.0 * (plan == "pro")
    leaves = np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), "leaves", "stays")
    spent = [f"{v:.2f}" if k % 50 else "unknown" for k, v in enumerate(rng.uniform(5, 90, rows))]
    table = {"months": months, "calls": calls, "plan": plan, "spent (€)": spent, "newsletter": rng.integers(0, 2, rows)}
    noise = {f"q{k}": rng.choice(["a", "b", "c"], rows) for k in range(16)}
    return table | noise, "churn", leaves


def sensors(rows=800):
    """A curve of two of forty sensors; unicode headers, a time with seconds, whole columns empty."""
    rng = np.random.default_rng(4)
    X = rng.normal(20, 5, size=(rows, 40)).round(2)
    start = datetime.datetime(2024, 1, 1)
    table = {f"Fühler {k} °C": _gaps(rng, X[:, k], 0.01) for k in range(40)}
    table["zeit"] = [(start + datetime.timedelta(minutes=7 * k)).isoformat() for k in range(rows)]
    table["温度"] = _gaps(rng, X[:, 3] * 1.8 + 32, 0.5)
    table["leer"] = [""] * rows
    y = 0.3 * X[:, 0] * X[:, 1] - X[:, 2] + rng.normal(0, 1, rows)
    return table, "Ausgang", y.round(3)


def grades(rows=500):
    """A passed exam as 0 and 1, with a school as a number that is a category, and an hour of few values."""
    rng = np.random.default_rng(5)
    hours, school = rng.uniform(0, 40, rows).round(0), rng.integers(1, 7, rows)
    passed = (rng.random(rows) < 1 / (1 + np.exp(-(hours - 18 - 6 * (school == 3)) / 4))).astype(int)
    table = {"hours": _gaps(rng, hours, 0.04), "school": school, "language": rng.choice(["fr", "de", "it"], rows)}
    noise = {f"score {k}": rng.integers(0, 100, rows) for k in range(17)}
    return table | noise, "passed", passed


#: Name → generator, the file's delimiter, and further options of `fit`.
TABLES = {
    "homes": (homes, ",", ()),
    "shops": (shops, ";", ()),
    "customers": (customers, ",", ("--degree", "2")),
    "sensors": (sensors, "\t", ("--degree", "2")),
    "grades": (grades, ",", ("--degree", "2", "--categorical", "school")),
}


def write_table(path, columns, delimiter=","):
    """A CSV file of columns."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
