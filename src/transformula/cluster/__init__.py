"""Workers for large work (processes of this machine, a Dask cluster, ranks of torchrun), and batches of formulas."""

from transformula.cluster.engines import Engine, EngineError, Outcome, WorkerLostError, opened_engine

__all__ = ["Engine", "EngineError", "Outcome", "WorkerLostError", "opened_engine"]
