"""One counted model of floating point, and what softmax attention loses in it."""
