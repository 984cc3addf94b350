# %% [markdown]
# # Inside a model
#
# In a trained Transformer one has to guess what a head does. In a compiled one everything has a name: the coordinates
# of the residual stream, the memory tokens, and the function that each head looks up.

# %%
import numpy as np

import transformula as tf

model = tf.compile("sin(x) + cos(2*y)", on="x=0..3, y=0..3", eps=1e-4)
print(model.tables[0])
# > <table at block 0, head 0: sin(x) of x in 0..3, ... tokens, writes y1>

# %% [markdown]
# ## A table is softmax of lines
#
# Memory token j scores `slope_j · u + offset_j`, and the head returns the average of the values, weighted by softmax of the
# scores. The readout adds what is a straight line in x and y. By hand:


# %%
def attention(table, u):
    scores = table.slopes[:, 0] * u + table.offsets[:, 0]
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


x, y = 1.2, 0.5
sine, cosine = model.tables
print(attention(sine, x).round(3))
by_hand = attention(sine, x) @ sine.values[:, 0]
by_hand += attention(cosine, y) @ cosine.values[:, 0]
print(by_hand.round(6))
# > [... ...]
# > ...

# %% [markdown]
# ## What the model did at a point
#
# `trace` runs the blocks and keeps everything. Both heads write into the slot `y1`, and wrote what we computed:

# %%
seen = model.trace([[x, y]])
print(seen.slots[:4])
print(seen.tokens[:2])
print(seen.residual("y1", token="data").round(6))
# > ('x.x', 'x.y', 'one', 'y1')
# > ('data', 'table 0, token 0')
# > [...]

# %% [markdown]
# The pattern of a head is its attention over all tokens: the data token first, then those of both tables. Tokens of the
# other table get none:

# %%
print(seen.pattern(block=0, head=0)[0].round(3))
# > [0. ... 0. ]

# %% [markdown]
# ## Who takes over where
#
# As x moves, the attention passes from one token to the next. `transitions` says where (beyond 0..3 too, where x does
# not come):

# %%
print(sine.transitions.round(3))
# > [...]

# %% [markdown]
# ## Ablation
#
# Weights are plain data, so an experiment is one replacement. Without its second head the model knows nothing of cos(2y):
# only a straight line in y is left, equal steps for equal steps of y.

# %%
from dataclasses import replace

from transformula.runtime.reference import run

block = model.weights.blocks[0]
first_head = replace(block.attention, heads=block.attention.heads[:1])
ablated = replace(model.weights, blocks=(replace(block, attention=first_head),))
left = run(ablated, np.array([[x, 0.0], [x, 1.0], [x, 2.0], [x, 3.0]]))
print(np.diff(left[:, 0]).round(6))
# > [...]

# %% [markdown]
# In a circuit, `model.ablate` and `model.patch` do this with a proof: [Patch, probe, ablate](patching.py).
