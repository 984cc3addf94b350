# %% [markdown]
# # Fit data
#
# Fang's theorem says that polynomials *are* Transformers. So a polynomial learned from data becomes a Transformer without
# any further error. The estimators follow scikit-learn's conventions (`pip install 'transformula[learn]'`).

# %%
import numpy as np

from transformula import PolynomialTransformerRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(500, 4))
y = 2 * X[:, 0] ** 2 - 3 * X[:, 1] * X[:, 2] + 0.5 + rng.normal(0, 0.1, size=500)

model = PolynomialTransformerRegressor(degree=3).fit(X[:400], y[:400])
print(model.score(X[400:], y[400:]) > 0.98)
# > True

# %% [markdown]
# The polynomial as text. The fourth column does not occur: the solver found that it does not matter.

# %%
formula = model.to_formula(tolerance=1e-3)
print("x1**2" in formula, "x2*x3" in formula, "x4" in formula)
# > True True False

# %% [markdown]
# The same polynomial as a Transformer, with a certificate about that text:

# %%
transformer = model.to_transformer()
print(transformer.construction, transformer.certificate.approximation)
# > polynomial 0.0

# %% [markdown]
# It reads the variables that occur in the formula, and agrees with `predict`:

# %%
columns = [int(name[1:]) - 1 for name in transformer.weights.inputs]
print(np.abs(transformer(X[400:][:, columns]) - model.predict(X[400:])).max() < 1e-6)
# > True

# %% [markdown]
# ## On the command line
#
# `transformula fit table.csv --target price --out folder` does the same for a CSV file: it holds out a fifth of the rows
# for the score, prints the formula and saves the Transformer. `transformula eval folder --csv new.csv --out predicted.csv`
# predicts.
#
# What a certificate says about a fitted model: the network computes the fitted formula within the bound. Whether that
# formula is right about your data is for the held-out score to say.
