# %% [markdown]
# # Circuits
#
# One layer of attention suffers from the curse of dimension: a table over six variables needs as many cells as a grid in
# six dimensions. A *formula* does not, because it is made of functions of one argument. The `circuit` construction gives
# each of them a small table and connects the tables by *wires*.

# %%
import transformula as tf

gravity = tf.compile(
    "G*m1*m2/((x2 - x1)**2 + (y2 - y1)**2)",
    on="G=1..2, m1=1..2, m2=1..2, x1=3..4, x2=1..2, y1=3..4, y2=1..2",
    eps=1e-3,
)
print(gravity.layers, "layers,", gravity.heads, "heads,", gravity.memory_tokens, "memory tokens")
# > ... layers, ... heads, ... memory tokens

# %% [markdown]
# Each head looks up one function of one linear form of earlier wires. A product a·b is read from the table of squares,
# since ab = ((a + b)² − (a − b)²)/4:

# %%
for table in gravity.tables[:4]:
    print(table.function, "of", " and ".join(table.arguments), "writes", table.writes[0])
# > u**2 of ... writes w...
# > ...

# %% [markdown]
# Very few different tables are needed, however many heads read them:

# %%
print(sorted({table.function for table in gravity.tables}))
# > ['u**(-1)', 'u**2']

# %% [markdown]
# ## The drawing
#
# From left to right: inputs, one column for each layer, the output. Each box says what it computes and which part of the
# formula it stands for. `transformula show FOLDER` prints the same as a tree, and `--svg FILE` writes the drawing.


# %%
from transformula.show.architecture import circuit_svg


class Drawing:
    def _repr_html_(self):
        return circuit_svg(gravity)


Drawing()

# %% [markdown]
# ## Errors flow
#
# The certificate adds up how far each table is from its function, times how much the output depends on it. Asking for a
# tighter bound makes the tables a little larger, and the circuit no deeper:

# %%
for eps in (1e-2, 1e-6, 1e-10):
    model = tf.compile("exp(-x*y)/(1 + z**2)", "x=0..1, y=0..1, z=0..1", eps, "circuit")
    print(f"{eps:.0e}: {model.layers} layers, {model.memory_tokens} memory tokens")
# > 1e-02: 3 layers, ... memory tokens
# > 1e-06: 3 layers, ... memory tokens
# > 1e-10: 3 layers, ... memory tokens
