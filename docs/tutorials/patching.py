# %% [markdown]
# # Patch, probe, ablate
#
# The methods of interpretability, on a Transformer whose circuit is known and proven: what they find can be compared
# with the truth.

# %%
import numpy as np

import transformula as tf

model = tf.compile("G*m1*m2/r**2", on="G=1..2, m1=1..2, m2=1..2, r=1..3", eps=1e-6)
for node in model.ground_truth.nodes:
    if node.kind == "table":
        print(f"block {node.block}, head {node.head} writes {node.name} = {node.expression}")
# > block 0, head 0 writes w4 = r**(-2)
# > block 0, head 1 writes w5 = (G + m1 - 3)**2
# > ...

# %% [markdown]
# A product is the difference of two squares: w5 and w6 make G·m1, and the heads of block 1 make m2/r².
#
# ## Patch
#
# Hold the slot w4 at 1/2, and the network computes the formula with 1/2 in place of 1/r². How far it can be from that is
# proven, for every input:

# %%
held = model.patch(w4=0.5)
print(held.formula[0], f"within {held.certificate.bound:.1g}")
# > 1/2*G*m1*m2 within ...e-10

# %%
x = np.random.default_rng(0).uniform([1, 1, 1, 1], [2, 2, 2, 3], (1000, 4))
error = np.abs(held(x) - x[:, 0] * x[:, 1] * x[:, 2] / 2).max()
print(error <= held.certificate.bound)
# > True

# %% [markdown]
# ## Ablate
#
# The same with everything that a head writes held at 0. Without head 0 of block 0 nothing of r is left, and the answer is 0:

# %%
print(model.ablate(block=0, head=0).formula[0])
# > 0*G*m1*m2

# %% [markdown]
# ## Probe
#
# A linear probe is fitted to the residual stream of the data token, to find where a quantity can be read. The truth says:
# G·m1 from the end of block 0 on, m2/r² from the end of block 1 on, their product at the end of block 2. `probed` is the
# share of the variance that the best linear probe leaves unexplained.

# %%
seen = model.trace(x)


def probed(block, quantity):
    stream = np.stack([seen.residual(slot, block=block, token="data") for slot in seen.slots], axis=1)
    stream = np.column_stack([stream, np.ones(len(x))])
    weights = np.linalg.lstsq(stream, quantity, rcond=1e-9)[0]
    return np.var(quantity - stream @ weights) / np.var(quantity)


G, m1, m2, r = x.T
for name, quantity in {"G*m1": G * m1, "m2/r**2": m2 / r**2, "G*m1*m2/r**2": G * m1 * m2 / r**2}.items():
    print(name, ["found" if probed(block, quantity) < 1e-6 else "not yet" for block in range(3)])
# > G*m1 ['found', 'found', 'found']
# > m2/r**2 ['not yet', 'found', 'found']
# > G*m1*m2/r**2 ['not yet', 'not yet', 'found']

# %% [markdown]
# `model.ground_truth.to_json()` and `to_networkx()` give the circuit to other tools, `model.to_transformer_lens()` the model:
# [interventions](../interventions.md), [export](../export.md).
