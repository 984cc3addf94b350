"""The meaning of a text: expressions, the parser, boxes; where, floor and sign written as continuous formulas."""
