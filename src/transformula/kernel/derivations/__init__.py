"""Why the circuit is the formula: normal forms, signs, removable singularities, and that it is defined on the box."""
