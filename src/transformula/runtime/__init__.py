"""The executors that run weights."""
