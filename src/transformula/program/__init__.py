"""What weights compute, as a short list of array operations, and three ways to carry it out."""
