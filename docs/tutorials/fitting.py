# %% [markdown]
# # Fit data
#
# Fang's theorem says that polynomials *are* Transformers. So a polynomial learned from data becomes a Transformer without
# any further error. The estimators follow scikit-learn's conventions (`pip install '.[learn]'` in a checkout).

# %%
import numpy as np

from transformula import PolynomialTransformerRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(500, 4))
y = 0.5 + 2 * X[:, 0] ** 2 - 3 * X[:, 1] * X[:, 2] + rng.normal(0, 0.1, size=500)

model = PolynomialTransformerRegressor(degree=3).fit(X[:400], y[:400])
print(f"R² on other rows: {model.score(X[400:], y[400:]):.3f}")
# > R² on other rows: 0.99...

# %% [markdown]
# The polynomial as text. The fourth column does not occur: the solver found that it does not matter.

# %%
print(model.to_formula(tolerance=1e-3))
# > 0.5061 + 1.979*x1**2 - 2.9995*x2*x3

# %% [markdown]
# The same polynomial as a Transformer, with a certificate about that text; its box is the range of the training rows:

# %%
transformer = model.to_transformer()
transformer

# %% [markdown]
# It reads the variables that occur in the formula, and agrees with `predict`:

# %%
columns = [int(name[1:]) - 1 for name in transformer.weights.inputs]
apart = np.abs(transformer(X[:400, columns]) - model.predict(X[:400])).max()
print(f"largest difference: {apart:.0e}")
# > largest difference: ...

# %% [markdown]
# ## A messy table
#
# `fit_table` takes raw columns: text, dates, gaps. It says what it did to each, and predicts raw rows.

# %%
from transformula.learn import TableModel, fit_table

n = 400
city = rng.choice(["Ulm", "Rom", "Wien"], n)
size = rng.uniform(30, 200, n).round(1)
table = {
    "city": city,
    "sq m": np.where(rng.random(n) < 0.05, np.nan, size),
    "sold on": [f"20{10 + k % 10}-06-15" for k in range(n)],
    "country": ["EU"] * n,
    "price": (2.0 * size * (1 + (city == "Rom")) + rng.normal(0, 4, n)).round(1),
}
home = fit_table(table, "price", degree=2, folder="home")
for column in home.preparation.columns:
    print(column.name, "→", column.kind)
# > city → category
# > sq m → number
# > sold on → date
# > country → left out

# %%
print(home.notes["formula"][0])
print(f"R² on held-out rows: {home.notes['held_out']['this fit']['r2']:.3f}")
# > ...city_Rom*sq_m
# > R² on held-out rows: 0...

# %% [markdown]
# Predictions have a status: unknown cities and empty cells are named, not refused.

# %%
new = {"city": ["Rom", "Oslo"], "sq m": [100.0, np.nan], "sold on": ["2012-01-01"] * 2}
print(home.predict(new).round(1), home.statuses(new))
# > [4... ...] ['inside', 'imputed, unknown category']

# %% [markdown]
# The folder is a model like any other: it verifies, and it exports to ONNX (`transformula export home --to onnx`), also
# as a file that takes raw rows. Loaded again it predicts the same:

# %%
print(np.array_equal(TableModel.load("home").predict(table), home.predict(table)))
# > True

# %% [markdown]
# ## On the command line
#
# `transformula fit table.csv --target price --out folder` does the same for a CSV file: it holds out a fifth of the rows
# for the score, prints what became of the columns and the formula, and saves the Transformer.
# `transformula eval folder --csv new.csv --out predicted.csv` predicts every row, and `transformula report folder` shows
# the fit: residuals, effects, importance, and the scores beside other models.
#
# What a certificate says about a fitted model: the network computes the fitted formula within the bound. Whether that
# formula is right about your data is for the held-out score to say. More: [Fitting data](../fitting.md).
