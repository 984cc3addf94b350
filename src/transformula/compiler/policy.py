"""Policy: the numeric constants that steer the search, by stage."""

from __future__ import annotations

# --- circuit
#: Folds of a length with which its effect on the outputs is found.
ROUGH_FOLDS = 8
#: Fraction of the tolerance that the lengths made of folds may use.
FOLDS_SHARE = 1 / 6
#: Most folds of a length by format: a relative error of 8.7e-15 and of 1.5e-7.
MOST_FOLDS = {"float64": 26, "float32": 14}
#: Fraction of its largest square below which a length is measured by folds, not by a table of the root.
SHORT_LENGTH = 1e-4
#: Least fraction of its size that a factor of a product is taken to vary by.
LEAST_VARIATION = 2.0**-10
#: Distance of values from zero, in spreads, beyond which a table holds them around zero.
FAR_FROM_ZERO = 1.0
#: Fraction of its range within which an argument counts as close to the end of a function's domain.
CLAMP_SLACK = 0.01
#: Largest ratio of the sizes of exchanged factors to those of the factors as written.
EXCHANGE_GAIN = 0.5
#: Fewest factors of a product of which a function is read at a sum of logarithms.
PLAIN_LOGS = 3
#: Fewest positive factors that a careful circuit multiplies by adding logarithms.
CAREFUL_LOGS = 2
#: Largest ratio r/p for which a careful circuit writes p/(p + r) as 1 - r/(p + r).
SMALL_COMPLEMENT = 0.5
#: Fraction of its range within which an argument may move without meeting other slopes.
NEAR = 0.1
#: Most rounds of halving, of loops that usually end after a few.
MOST_ROUNDS = 60
#: Largest power of two by which the argument of a square is scaled up, by format.
MOST_SQUARE_SCALE = {"float64": 480, "float32": 56}
#: Ratio of rounding to tolerance above which the tolerance is out of reach.
OUT_OF_REACH = 10.0
#: Ratio of the tolerance planned for instead to the rounding.
ABOVE_ROUNDING = 2.0
#: Share of a table whose function has an unbounded slope, in shares of other tables.
SINGULAR_SHARE = 2.5
#: Most tokens of a table of a wire.
MOST_WIRE_TOKENS = 120
#: Least error of a table relative to its size, by format: rounding hides anything smaller.
TABLE_FLOOR = {"float64": 120 * 2.0**-53, "float32": 100 * 2.0**-24}

# --- lowering
#: Ratio A²/|B| above which the root √(A² + B) and A nearly cancel.
SERIOUS_CANCELLATION = 4
#: Points of the box at which the sign of a candidate is looked at before a proof is tried.
SIGN_POINTS = 40
#: Most nodes of an expression whose sign is a candidate.
SIGN_NODES = 300
#: Most variables and functions of a polynomial that is written as a sum of squares.
SQUARES_GENERATORS = 12
#: Largest degree of such a polynomial.
SQUARES_DEGREE = 12
#: Most terms of such a polynomial.
SQUARES_TERMS = 400
#: Most removable singularities that are removed from a formula.
MOST_STEPS = 1_000
#: Largest whole number that is looked at as the place of a zero.
LAST_ZERO = 2
#: Highest order of a zero.
MOST_ORDER = 4
#: Most terms of a sum that is looked at for zeros.
ZERO_TERMS = 8

# --- evidence: cells of a function
#: Largest spread of the slopes on a cell, as a fraction of the steepest slope.
CELL_SLOPES = 0.1
#: Most cells of a function.
MOST_CELLS = 500
#: Most cells where any bound will do.
FEW_CELLS = 200
#: Cells of equal width to begin with.
FIRST_CELLS = 48

# --- evidence: definedness
#: Most parts of a smaller box that a refusal might suggest.
SUGGESTION_PARTS = 400
#: Most parts of the box in the search for one on which the formula is defined.
DEFINED_PARTS = 20_000
#: Least width of a part, as a fraction of the box.
SMALLEST_PART = 2.0**-36
#: Most variables at fault for which a refusal suggests a box.
SUGGESTION_VARIABLES = 3
#: Most variables whose ends are combined into corners to look at.
CORNER_VARIABLES = 6

# --- evidence: finder
#: Fraction by which an argument may be further off than was found.
ERROR_ROOM = 0.1
#: Microseconds of work for the evidence of one proof.
USUAL_SEARCH = 3e6
#: Fraction of the remaining work for the evidence of one proof, if that is more.
SEARCH_PART = 0.2

# --- evidence: parts for the flow of errors
#: Most parts of the box.
FLOW_PARTS = 1500
#: Fraction of the worst bound above which a part is cut.
FLOW_WORST = 0.85
#: Most rounds of cuts.
FLOW_ROUNDS = 40
#: Most rounds times the square of the number of inputs.
FLOW_LOOKS = 4000
#: Parts that are bounded at once.
FLOW_TOGETHER = 2000
#: Fraction that the worst bound must fall to within a few rounds.
FLOW_GAIN = 0.98

# --- evidence: pieces of grids
#: Ratio of the bound of an error to an error that occurs, without a target.
GRID_TIGHTNESS = 1.5
#: Ratio of an error that occurs to the target above which any bound will do.
GRID_HOPELESS = 2.0
#: Ratio of the bound to an error that occurs, where any bound will do.
GRID_LOOSE = 4.0
#: Divisor of the number of boxes where any bound will do.
GRID_SHARE = 4
#: Fraction of the target below which a bound is not tightened.
GRID_NEGLIGIBLE = 1e-6
#: Largest part of a weight that its series may leave out.
SOFTMAX_LOSS = 0.01
#: Boxes without a bound before they may be given up.
MANY_UNBOUNDED = 100
#: Levels at which boxes without a bound did not become fewer before they are given up.
PATIENT_LEVELS = 4

# --- evidence: cells of a partition
#: Most rounds of cuts.
PARTITION_ROUNDS = 8
#: Most cells cut in a round.
PARTITION_CUTS = 200_000
#: Fraction of the bound that an error that occurs reaches where cuts are not worth it.
PARTITION_CLOSE = 0.98

# --- evidence: trees of ranges
#: Most variables for which all corners of a region are looked at, else 2 to this power at random.
RANGE_CORNERS = 8

# --- evidence: pieces of tables
#: Ratio of the bound of an error to an error that occurs.
PIECE_TIGHTNESS = 1.08
#: Fraction of |f| below which an error is not refined.
PIECE_NOISE = 2.0**-60
#: Fraction that the worst bound must fall to for halving to go on.
PIECE_GAIN = 0.9
#: Halvings without such a gain before giving up.
PIECE_PATIENCE = 100
#: Most pieces that bound a slope.
SLOPE_PIECES = 600
#: Most pieces that bound a slope where any bound will do.
FEW_SLOPE_PIECES = 40
#: Ratio of the bound of a slope to a slope that occurs.
SLOPE_TIGHTNESS = 1.2
#: Fraction of an interval by which its pieces may reach beyond it.
PIECE_OVERHANG = 1e-3

# --- evidence: claims about wires
#: Most independent parts of an expression that are varied together.
CLAIM_PARTS = 4
#: Least part of its width by which a stored claim tightens a range.
CLAIM_GAIN = 1e-4
#: Most quantities that are nested.
CLAIM_DEPTH = 40
#: Most nodes of an expression that is searched for repeated parts.
CLAIM_NODES = 150
