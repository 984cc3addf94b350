"""How far a softmax table is from a function, on pieces that are given."""
