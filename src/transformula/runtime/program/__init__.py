"""The function of the weights as a short list of array operations, and the back-ends that run it."""
