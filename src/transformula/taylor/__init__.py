"""Taylor models: proven ranges of expressions on boxes, one by one or thousands at a time."""
