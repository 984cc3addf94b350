"""Workers for large amounts of work (processes of this machine, or a Dask cluster), and batches of many formulas."""

from transformula.cluster.engines import Engine, EngineError, Outcome, WorkerLostError, opened_engine

__all__ = ["Engine", "EngineError", "Outcome", "WorkerLostError", "opened_engine"]
