"""Weights as the compiler first tries them, to be forged and proven again with a fresh search for evidence."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from flint import arb

import transformula as tf
from support.judging import largest_error
from transformula import api as compiling
from transformula.compiler import driver
from transformula.compiler.certify import outlined, pack
from transformula.compiler.evidence.finder import Finder
from transformula.errors import NotProvenError
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import prove, verify_files
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.folder.description import Certificate, Description
from transformula.kernel.folder.weights import Matrix, Weights
from transformula.kernel.rounding.formats import describe
from transformula.kernel.syntax.boxes import Formula
from transformula.runtime.matrices import dense_matrix


class _Stopped(Exception):
    """Carries what was about to be proven."""


@dataclass(frozen=True)
class Tried:
    """A model before its proof."""

    construction: str
    weights: Weights
    circuit: Any
    evidence: Finder
    target: Formula | Samples

    @property
    def description(self) -> Description:
        if isinstance(self.target, Samples):
            samples = {"x": self.target.x.tolist(), "y": self.target.y.tolist()}
            return outlined(self.weights, Description(self.construction, samples=samples))
        plain = Description(
            self.construction,
            list(self.target.texts),
            str(self.target.box),
            circuit=json.loads(json.dumps(self.circuit)),
        )
        return outlined(self.weights, plain)

    def truth(self, points: np.ndarray) -> np.ndarray:
        """What is wanted at the points; for samples, at all of them."""
        if isinstance(self.target, Samples):
            return self.target.y
        names = self.target.box.variables
        with precision(300):
            known = [dict(zip(names, map(arb, p), strict=True)) for p in points.tolist()]
            return np.array([[float(enclose(e, at).mid()) for e in self.target.outputs] for at in known])

    def error(self, points: Any) -> float:
        """The largest error at the points, whatever runs the weights."""
        x = np.asarray(points, dtype=float)
        return largest_error(self.weights, x, self.truth(x))

    def assert_not_fooled(self, points: Any, worse_than: float) -> None:
        """The weights err by more than ``worse_than`` at the points, and the proof does not say otherwise."""
        wrong = self.error(points)
        assert wrong > worse_than, "this forgery does no harm"
        try:
            proof = prove(self.weights, self.description, self.evidence)
        except NotProvenError:
            return
        assert not proof.bound < wrong
        packed = pack(self.weights, self.description, self.evidence.evidence())
        half, dtype = 0.4 * min(wrong, 1e300), self.weights.dtype
        claim = Certificate(self.construction, half, half, 3 * half, dtype, describe(dtype), **packed.hashes)
        assert not verify_files(packed, claim.to_json()).verified

    def with_weights(self, **changes: Any) -> Tried:
        return replace(self, weights=replace(self.weights, **changes))


def tried(formula: Any, on: Any, **options: Any) -> Tried:
    """The first attempt at a formula, or (formula and on arrays) at a table of samples."""

    def stop(construction: Any, built: Any, target: Any, _: Any) -> None:
        raise _Stopped(construction.name, built.weights, built.circuit, built.evidence, target)

    with pytest.MonkeyPatch.context() as patch:
        for module in (driver, compiling):
            patch.setattr(module, "package", stop)
        try:
            if isinstance(formula, np.ndarray):
                tf.memorize(formula, on, **options)
            else:
                tf.compile(formula, on=on, **options)
        except _Stopped as stopped:
            return Tried(*stopped.args)
    raise AssertionError("nothing was tried")


def with_values(matrix: Matrix, values: np.ndarray) -> Matrix:
    """The matrix with other entries."""
    return dense_matrix(values, str(matrix.values.dtype))
