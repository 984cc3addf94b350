# %% [markdown]
# # Export
#
# A compiled model is plain arrays. It runs in onnxruntime and in torch, and the certificate goes along
# (`pip install '.[onnx,torch]'` in a checkout).

# %%
import numpy as np
import onnxruntime
import torch

import transformula as tf

model = tf.compile("exp(-x)*sin(3*x)", on="x=0..2", eps=1e-4)
model.save("wave")
path = model.to_onnx("wave/model.onnx")

# %% [markdown]
# ## ONNX
#
# One file, no custom operators. At default session options the result is within the proven rounding of the model.

# %%
x = np.linspace(0, 2, 1001)[:, None]
session = onnxruntime.InferenceSession(path)
y = session.run(["y"], {"x": x})[0][:, 0]
seen = np.abs(y - np.exp(-x[:, 0]) * np.sin(3 * x[:, 0])).max()
print(f"largest error seen: {seen:.1e}, proven: {model.certificate.bound:.1e}")
# > largest error seen: ...e-05, proven: ...e-05

# %% [markdown]
# The metadata carry the formula and the claim, and `transformula verify wave --onnx wave/model.onnx` checks that the
# file is this model, number by number.

# %%
claims = session.get_modelmeta().custom_metadata_map
print(claims["formula"])
# > ["exp(-x)*sin(3*x)"]

# %% [markdown]
# ## PyTorch
#
# `to_torch` gives an `nn.Module` with the same weights. It is differentiable, so the derivative of the network can be
# compared with the derivative of the formula:

# %%
module = model.to_torch()
point = torch.tensor([[0.5]], dtype=torch.float64, requires_grad=True)
module(point).sum().backward()
slope = np.exp(-0.5) * (3 * np.cos(1.5) - np.sin(1.5))
print(f"network {point.grad.item():.4f}, formula {slope:.4f}")
# > network -0.4..., formula -0.4...

# %% [markdown]
# `transformula export wave --to torch` writes a folder with a state_dict and a short `load.py` that needs torch and
# safetensors only. See [Taking a model elsewhere](../export.md) for formats, numbers and limits.
