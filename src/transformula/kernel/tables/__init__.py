"""The distance of a softmax table from a function, on given pieces."""
