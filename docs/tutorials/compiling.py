# %% [markdown]
# # Compile and prove
#
# A formula, a box of inputs and a tolerance go in. A Transformer comes out, with a certificate that it stays within the
# tolerance at every point of the box.

# %%
import numpy as np

import transformula as tf

model = tf.compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=1e-6)
model

# %% [markdown]
# The card above shows the claim. It has two parts, because two different things can go wrong: the exact real function of
# the weights is not quite the formula (*approximation*), and floating-point arithmetic is not quite real arithmetic
# (*rounding*). Their sum is the bound.

# %%
claim = model.certificate
parts = f"{claim.approximation:.1e} + {claim.rounding:.1e}"
print(f"{parts} <= {claim.bound:.1e} <= {claim.eps:.0e}")
# > ...e-07 + ...e-12 <= ...e-07 <= 1e-06

# %% [markdown]
# Arrays in, arrays out. A million random points cannot beat a bound that holds everywhere:

# %%
points = np.random.default_rng(0).uniform(0, 2 * np.pi, (1_000_000, 2))
error = np.abs(model(points) - np.sin(points).sum(axis=1)).max()
print(f"largest error seen: {error:.1e}, proven: {claim.bound:.1e}")
# > largest error seen: ...e-07, proven: ...e-07

# %% [markdown]
# ## Prove it again
#
# `save` writes a folder of four files: weights, description, evidence and certificate. `verify` proves the claim again
# from those files, with code that shares nothing with the compiler.

# %%
model.save("sum")
print(tf.verify("sum").verified)
# > True

# %% [markdown]
# A changed weight is noticed, so the file itself need not be trusted:

# %%
from pathlib import Path

weights = Path("sum/model.safetensors")
content = bytearray(weights.read_bytes())
content[-1] ^= 1
weights.write_bytes(content)
print(tf.verify("sum").reasons[0])
# > ...

# %% [markdown]
# ## Polynomials are exact
#
# Fang et al. (2022) show that q blocks of hardmax attention compute any polynomial of degree q. No approximation is left:

# %%
exact = tf.compile("x**5 - 3*x**2*y + 1/3", on="x=-1..1, y=-1..1")
print(exact.layers, "layers, approximation", exact.certificate.approximation)
# > 5 layers, approximation 0.0

# %% [markdown]
# ## What is refused
#
# A tolerance that cannot be proven, or a formula that is undefined somewhere in the box, is refused in one sentence:

# %%
from transformula.errors import TransformulaError

try:
    tf.compile("log(x)", on="x=-1..1", eps=1e-3)
except TransformulaError as error:
    print(error)
# > log(x) is undefined...
