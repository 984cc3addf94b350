"""What the weights compute, as a short list of array operations, and three back-ends that run it."""
