# %% [markdown]
# # A formula that answers in text
#
# A compiled formula can be a language model of its own: a stock GPT-2 with a stock tokenizer, which reads numbers and
# prints the digits of the answer. It is not trained, and how far its answers are from the formula is proven
# (`pip install '.[hf,torch]'` in a checkout).

# %%
import json
from fractions import Fraction

from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import transformula as tf

model = tf.compile("G*m1*m2/r**2", on="G=1..2, m1=1..2, m2=1..2, r=1..3", eps=1e-6)
folder = model.to_hf("gravity", text=True)
ask = pipeline("text-generation", model=folder)

# %% [markdown]
# ## A conversation
#
# Variables come in any order, with any number of decimals. What is outside the box or malformed is answered by `nan`:

# %%
prompts = ["G=1.5 m1=1.25 m2=1.0 r=2.0 F=", "r=2 m2=1 G=1.50 m1=1.25000 F=", "G=3 m1=1 m2=1 r=2 F=", "What is F?"]
for prompt in prompts:
    print(ask(prompt)[0]["generated_text"])
# > G=1.5 m1=1.25 m2=1.0 r=2.0 F=0.468750
# > r=2 m2=1 G=1.50 m1=1.25000 F=0.468750
# > G=3 m1=1 m2=1 r=2 F=nan
# > What is F?nan

# %% [markdown]
# ## The claim
#
# For *every* prompt of the grammar, the printed number is at most `bound` from the formula; half a unit of the sixth decimal
# is most of that:

# %%
claim = json.loads((folder / "config.json").read_text())["transformula"]
print(claim["grammar"]["prompt"], f"{claim['half_unit']:.1e} of {claim['bound']:.2e}")
# > G=NUMBER m1=NUMBER m2=NUMBER r=NUMBER F= 5.0e-07 of 5.48e-07

# %%
answer = ask("G=1.1 m1=1.7 m2=1.9 r=1.3 F=")[0]["generated_text"].rpartition("=")[2]
exact = Fraction("1.1") * Fraction("1.7") * Fraction("1.9") / Fraction("1.3") ** 2
print(answer, abs(Fraction(answer) - exact) <= claim["bound"])
# > 2.102367 True

# %% [markdown]
# ## Nothing but transformers
#
# The folder is an ordinary one. Tokens carry digits with their places; batches are padded on the left:

# %%
tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
given = tokenizer(["G=1 m1=1 m2=1 r=1 F=", "G=1.999 m1=2 m2=2.000 r=1.000001 F="], padding=True, return_tensors="pt")
print(tokenizer.batch_decode(network.generate(**given)[:, given["input_ids"].shape[1] :], skip_special_tokens=True))
# > ['1.000000', '7.99598...']

# %% [markdown]
# `transformula verify MODEL --hf FOLDER` builds all files again and compares them. The grammar, the proof and its assumptions:
# [Text in, text out](../text.md).
