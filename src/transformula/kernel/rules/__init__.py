"""One rule for each construction: weights, formula and evidence to proven bounds."""
