"""What a text means: expressions, the parser, boxes; where, floor and sign written as continuous formulas."""
