"""Packages that only some features need: a missing one is named in one sentence, before any work is done."""

from __future__ import annotations

from importlib.util import find_spec

from transformula.errors import InputError

#: Module → the extra that installs it, as in pyproject.toml.
EXTRAS = {
    "anywidget": "notebook",
    "distributed": "dask",
    "fastapi": "explorer",
    "matplotlib": "plot",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "plotly": "explorer",
    "pyarrow": "parquet",
    "skl2onnx": "skl2onnx",
    "sklearn": "learn",
    "torch": "torch",
    "transformer_lens": "hf",
    "transformers": "hf",
    "uvicorn": "explorer",
}
#: Where a package and its module have different names.
_PACKAGES = {"sklearn": "scikit-learn", "transformer_lens": "transformer-lens"}


class MissingPackageError(InputError, ImportError):
    """A feature needs a package that is not installed."""


def require(feature: str, *modules: str) -> None:
    """Refuse a feature whose packages are not installed, and say how to install them.

    Parameters
    ----------
    feature : str
        What was asked for, as the subject of the sentence.
    modules : str
        Modules it imports, each a key of `EXTRAS`.

    Examples
    --------
    >>> require("to_torch", "torch")
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        names = " and ".join(_PACKAGES.get(module, module) for module in missing)
        extras = ",".join(sorted({EXTRAS[module] for module in missing}))
        verb = "is" if len(missing) == 1 else "are"
        raise MissingPackageError(
            f"{feature} needs {names}, which {verb} not installed: pip install 'transformula[{extras}]'"
        )
