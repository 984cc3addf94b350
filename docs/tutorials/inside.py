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
first, second = model.tables
by_hand = attention(first, x) @ first.values[:, 0] + attention(second, y) @ second.values[:, 0]

# %% [markdown]
# ## What the model did at a point
#
# `trace` runs the blocks and keeps everything. Both heads write into the slot `y1`, and wrote what we computed:

# %%
seen = model.trace([[x, y]])
print(seen.slots)
# > ('x.x', 'x.y', 'one', ..., 'y1')
print(seen.tokens[:2])
# > ('data', 'table 1, token 1')
print(np.abs(seen.residual("y1", token="data")[0] - by_hand) < 1e-9)
# > True

# %% [markdown]
# The pattern of a head is its attention over all tokens. Tokens of the other table get none:

# %%
pattern = seen.pattern(block=0, head=0)[0]
own = [k for k, name in enumerate(seen.tokens) if name.startswith("table 1,")]
print(np.abs(pattern[own] - attention(first, x)).max() < 1e-9, pattern.sum() - pattern[own].sum() < 1e-12)
# > True True

# %% [markdown]
# ## Who takes over where
#
# As x moves, the attention passes from one token to the next. `transitions` says where:

# %%
print(len(first.transitions) == len(first.values) - 1)
# > True

# %% [markdown]
# ## Ablation
#
# Weights are plain data, so an experiment is one replacement. Without its second head the model knows nothing of cos(2y):
# only a straight line in y is left, and its second differences vanish.

# %%
from dataclasses import replace

from transformula.runtime.reference import run

block = model.weights.blocks[0]
without = replace(block, attention=replace(block.attention, heads=block.attention.heads[:1]))
ablated = replace(model.weights, blocks=(without,))
left = run(ablated, np.array([[x, 0.0], [x, 1.0], [x, 2.0]]))[:, 0]
print(abs(left[0] - 2 * left[1] + left[2]) < 1e-9)
# > True
