"""The rule for softmax models of any depth: ranges, tables, errors and rounding, carried from wire to wire."""
