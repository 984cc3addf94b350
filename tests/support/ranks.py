"""Run by torchrun in tests: fits estimators in a process group; the second rank is killed once, in mid-training."""

import os
import signal
import sys
from pathlib import Path

import numpy as np


def estimators(folder, checkpoints=True):
    """What is trained, by name; each has its own checkpoint."""
    from transformula.learn import OneLayerTransformerRegressor, PolynomialTransformerRegressor

    def at(name):
        return {"checkpoint": str(Path(folder) / name), "checkpoint_every": 2} if checkpoints else {}

    shared = {"epochs": 6, "batch_size": 32, "early_stopping": False}
    return {
        "sgd": PolynomialTransformerRegressor(2, "sgd", **shared, **at("sgd.pt")),
        "adam": PolynomialTransformerRegressor(2, "adam", **{**shared, "early_stopping": True}, **at("adam.pt")),
        "one": OneLayerTransformerRegressor(**shared, **at("one.pt")),
    }


def rows():
    """A table of 101 rows, so that batches do not divide by the ranks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(101, 2))
    return X, X[:, 0] ** 2 - X[:, 1] + 0.1 * rng.normal(size=101)


def in_parts(workers):
    """A closed form from parts that the workers share, in so few rows of a sample that the table is a large one."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.array_parts import ArrayReader
    from transformula.cluster.table_parts import ReadParts
    from transformula.learn import PolynomialTransformerRegressor, states
    from transformula.learn.states import survey_of

    states._LEAST_SAMPLE = states._MOST_SAMPLE = 40
    X, y = rows()
    readers = tuple(ArrayReader(X[k : k + 20], y[k : k + 20, None]) for k in range(0, 101, 20))
    parts, model = ReadParts(2, 1, readers, workers), PolynomialTransformerRegressor(2, "exact")
    survey = survey_of(parts, states.HeldOut())
    assert not survey.complete
    model.fit_parts(parts, survey)
    return model.predict(X)


def main(folder):
    from transformula.cluster.ranks import joined
    from transformula.learn import training

    step, steps = training.Trainer.step, []
    with joined() as ranks:

        def counted(*arguments):
            steps.append(1)
            if len(steps) == 38 and ranks.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments)

        training.Trainer.step = counted
        X, y = rows()
        predictions = {name: model.fit(X, y).predict(X) for name, model in estimators(folder).items()}
        predictions["in parts"] = in_parts(ranks)
        if ranks.rank == 0:
            np.savez(Path(folder) / "predictions.npz", **predictions, steps=len(steps))


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # torch's own threads may abort while the interpreter shuts down
