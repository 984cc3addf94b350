"""Policy: the numeric constants that steer the search, by stage.

None of them can make a wrong model pass: the kernel proves what comes out. Modules read them as ``policy.NAME`` where
they use them, so that ``benchmarks/ablation.py`` can change one at a time and report what it buys in tokens, bound,
work and refusals. Seconds and microseconds are of counted work (`transformula.budget`), the same on every machine.
"""

from __future__ import annotations

# --- search: budgets
DEFAULT_EPS = 1e-6  # tolerance of the approximating constructions where none is given
PLAIN_SIZE = (1e-3, 1e3)  # largest |formula| between these: that tolerance is absolute; beyond, a share of it
ALL = 14.0  # seconds for a search in all, as long as no attempt has failed with a known error
AFTER_FAILURE = 6.0  # seconds for a search in all once an attempt has failed, and again for proofs that were cut short
REFUSED = 8.0  # seconds for a refusal in all; what is left of them goes into a bound to report
#: Most and fewest seconds for that bound. The first is also what finding floors of bases that touch zero may take, and
#: an attempt that has shown nothing: after that, the other attempts of its group are ruled out.
KEPT, LEAST_KEPT = 3.0, 1.0
SMALL = 6  # number of variables or outputs up to which these budgets hold; larger formulas get proportionally more
MOST_TIMES = 4.0  # largest factor by which a large formula may take more
IN_TIME = 0.8  # fraction of a time limit after which the search for a bound to report begins
EACH = 0.9  # fraction of the remaining work that one construction may use, so that others can still be tried

# --- search: coarser models for a refusal
WHOLE, ADVICE = 13.0, 6.0  # seconds for a refusal with its advice, and fewest seconds for searches that check advice
#: Tolerances that are checked, as multiples of the best bound, the larger one first; how far apart they are at last
#: where neither is met; and widths of smaller boxes, in widths of the one given.
ADVICE_ROOM, NEAR_ADVICE, SMALLER_BOXES = (1.2, 3.0), 10.0, (1 / 64, 1 / 16, 1 / 4)
EACH_ADVICE, FOR_TOLERANCE = 0.8, 0.4  # fractions of the remaining work for one of them, and for all tolerances
CLIMB = 30.0  # factor by which a tolerance that was not met is raised, while nothing is proven at all
WORTH_SAYING = 0.25  # fraction of the formula's own range below which a bound is worth reporting
COARSE = 1 / 16  # tolerance of the first coarse model, as a fraction of the formula's own range
ROOM = 1.5  # factor between a measured error and a tolerance that can be proven for it

# --- plan
MOST_TOKENS = 20_000  # most tokens of a grid, of a polynomial, and of local polynomials: more than one would run
#: Most linear forms of a summand for which a grid competes with a circuit: sin(x)*y at 1e-3 is smaller as one.
MAX_GRID_FORMS = 2
FEWEST_FLOATS = 8  # fewest numbers of the format that an interval must contain for a table to make sense
STRAINED = 4.0  # expected error of fitted tables, in tolerances, above which a proof is not tried

# --- prepare
#: Bits by which the floors of bases that touch zero are below the largest base, tried in turn.
FLOOR_BITS = (8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 80, 100, 140)
APART = 1 / 8  # fraction of the tolerance that such floors may take, or lengths made of folds

# --- one layer
MAX_COEFFICIENT = 10**30  # largest whole number in a linear form: beyond it the form would leave float32's range
LOOKUP_SHARES = (1.0, 0.6, 0.3)  # fractions of the tolerance given to the solver, until a proof closes
EASY_MULTIPLE = 200.0  # tolerance over the rounding of the values, for tolerances that rounding rules out

# --- partition
MOST_POINTS = 2_000_000  # most tokens of a partition, and most points of a mesh or of cells that are sampled
#: Weight outside the widened cells, in bits; a little more than the proof asks for.
FAR_BITS = {"float64": 41, "float32": 17}
#: Widening of a cell, as a fraction of the narrower neighbour: sharper cells have larger scores, hence more rounding.
WIDENING = {"float64": 1e-3, "float32": 1e-1}
#: Mesh points on an axis where the variation is measured, by number of axes; of more axes, yun has no model.
MESH = {1: 20_001, 2: 801, 3: 101, 4: 33, 5: 13, 6: 9}
#: Factors by which cells are made finer, tried in turn: the first aims at the covering number.
FINER_CELLS = (1.004, 1.02, 1.05, 1.12, 1.3, 1.7, 2.5)

# --- polynomial
MAX_PROOF_TERMS = 30_000_000  # terms the proof may expand: some ten seconds of work
MAX_SYSTEM = 40_000  # largest rational linear system (rows × columns) that is worth solving to save a token

# --- corollary
#: Highest degree tried, by number of variables (of more, none is tried): beyond it there are too many tokens or terms.
MAX_DEGREE = {1: 60, 2: 30, 3: 18, 4: 12}
#: Shares of the tolerance for the measured error of polynomials and of yun's cells, tried in turn; the rest is for
#: the proof, seams and rounding.
MEASURED_SHARES = (0.95, 0.8, 0.5)
CHEBYSHEV_POINTS = {1: 2000, 2: 90, 3: 26, 4: 14}  # Chebyshev points on an axis, by number of variables
ALL_DEGREES = 4.0  # seconds for all degrees; one of them gets half

# --- tables: samples
MAX_LEAVES = 1500  # leaves of an interval; a function that needs more oscillates too often for any table
FIRST_CUTS = (0.37, 0.71)  # first cuts of an interval, as fractions; unequal, so that no periodic function aliases
FINE_LEAF = 1e-3  # width of a leaf over that of its interval below which samples are centred on it
SINGULAR_LEAF = 1e-6  # width of a leaf over that of its interval below which the function counts as singular there
MINOR_SHARE = 0.03  # share of the tolerance for side errors: interpolants on leaves, seams, local circuits
DENSE_POINTS = 2000  # points on which a finished table is measured
POINTS_PER_TOKEN = 10  # sample points of a fit for each token: about three parameters, oversampled threefold
LAST_POINTS_PER_TOKEN = 25  # the same for the last refinement of a table

# --- tables: acceptance
APPROXIMATION_SHARE = 0.7  # largest measured error of an accepted table, as a fraction of the tolerance
TOTAL_SHARE = 0.9  # largest measured error plus modelled rounding, as a fraction of the tolerance
MAX_SPOILED = 6  # sizes in a row that rounding alone spoils before the search gives up

# --- tables: descent
OPERATIONS_PER_MICROSECOND = 4e3  # floating-point operations of one core in a microsecond of the budget
MAX_STEP = 2.0  # largest change of a score within a token's own neighbourhood in one step
LEAST_WEIGHT = 1e-6  # least weight for which a token's value is priced, which bounds the values
STALL = 10  # steps over which the cost must fall
STALLED = 0.98  # fraction that a cost or a bound must fall to, or the unevenness of errors, for work on it to go on
HIGH_PRICE = 1e-2  # rounding that values as large as the function's range may cost, as a fraction of the tolerance

# --- tables: starts
SHARPNESS = (0.5, 1.5, 4.0, 0.15)  # overlap of neighbouring tokens, from overlapping to cell-like
OVERHANGS = (0, 1, 2)  # tokens beyond each end of the interval
DENSITY_POWERS = (1.0, 0.5, 0.0)  # exponents of the leaves' density, from fully adapted to equispaced
TURNS = (0.5, 0.1, 0.02)  # slopes by which a split token's halves differ, over the inverse of its spread
POLE_DEGREES = (6, 10, 14, 20, 28)  # degrees of the polynomials that look for a pair of poles

# --- tables: sizes
WARM_STARTS = 3  # starts made from the table of another size
QUICK_STEPS = 8  # descent steps from every start, and of an oscillatory table, with as many rounds of reweighting
FINALISTS = 4  # starts that are refined
LONG_STEPS = 80  # descent steps of a refinement
LAWSON_ROUNDS = 25  # rounds of reweighting towards the minimax table or polynomial
#: Factor by which reweighting may lower an error at best, and up to which the error of stored scores may exceed that of
#: their own function if two functions count as similar.
WITHIN_REACH = 30.0
HOPELESS = 300.0  # error over the goal above which a size is given up after its best start
SIZE_WORK = 600_000.0  # microseconds on one size, and on a table with fewer tokens than oscillations
#: Microseconds on growing sizes until one is accepted, again on removing tokens from it, and on its last refinement.
TABLE_WORK = 3.5e6
ALL_STARTS = 5  # size up to which all starts are tried; larger tables mostly grow from smaller ones
ALL_STARTS_RATIO = 1.4  # growth of the size after which all starts are tried again
MAX_ALL_STARTS = 34  # size above which a shrinking table is only pruned
MAX_SHRINK = 80  # size above which no token is removed
GROWING_PART = 0.4  # fraction of the remaining budget that a table may take to grow or to shrink
DOUBTFUL_PART = 0.1  # the same for growing after a table was not found

# --- tables: oscillations
FEW_SWINGS = 8  # crossings of the median up to which a function is not treated as oscillatory
MANY_SWINGS = 40  # crossings of the median above which only oscillatory tables are tried
MAX_BEYOND = 8  # tokens beyond the ends

# --- tables: stored scores
NEIGHBOURS = 6  # stored scores tried for a size

# --- tables: exponentials
FIRST_EXPONENTIALS = 3  # terms of the first sum
RATE_SPREADS = (4.0, 7.0, 12.0, 20.0, 35.0)  # ranges of the logarithms of the rates that the first sums start from
MANY_EXPONENTIALS = 40  # terms above which no other table comes closer
RARE_SHARE = 0.02  # error that the weights of rare tokens may add, as a fraction of the tolerance
STEEP_ROUNDING = 7.0  # rounding of the steepest score, rounded twice, over the squared unit, slope and values

# --- tables: grids
GRID_SECTIONS = {2: 41, 3: 13, 4: 8}  # points of each other axis through which sections pass, by dimension
GRID_NEGLIGIBLE = 1e-6  # share of the tolerance below which the error of a grid needs no sharper bound
#: Points of each axis on which values are solved, by dimension: larger grids have too many tokens for any tolerance.
GRID_POINTS = {2: 160, 3: 44, 4: 20}
#: Factors on the price of large values while scores are chosen, and while rounding is the larger error.
GRID_PRICES = (1.0, 10.0, 100.0, 1000.0)

# --- circuit
#: Most folds of a length by format: a relative error of 8.7e-15 and of 1.5e-7.
MOST_FOLDS = {"float64": 26, "float32": 14}
#: Fraction of its largest square below which a length is measured by folds, not by a table of the root.
SHORT_LENGTH = 1e-4
LEAST_VARIATION = 2.0**-10  # least fraction of its size that a factor of a product is taken to vary by
CLAMP_SLACK = 0.01  # fraction of its range within which an argument counts as close to the end of a function's domain
PLAIN_LOGS = 3  # fewest factors of a product of which a function is read at a sum of logarithms
NEAR = 0.1  # share of its range by which errors may move an argument without other slopes being looked at
#: Most rounds of loops and nestings that usually end after a few: of halving, of cuts, of finer meshes, of limits.
MOST_ROUNDS = 80
OUT_OF_REACH = 10.0  # ratio of rounding to tolerance above which the tolerance is out of reach
SINGULAR_SHARE = 2.5  # share of a table whose function has an unbounded slope, in shares of other tables
MOST_WIRE_TOKENS = 120  # most tokens of a table of a wire
#: Least error of a table relative to its size, by format: rounding hides anything smaller.
TABLE_FLOOR = {"float64": 120 * 2.0**-53, "float32": 100 * 2.0**-24}

# --- lowering
SERIOUS_CANCELLATION = 4  # ratio A²/|B| above which the root √(A² + B) and A nearly cancel
SIGN_POINTS = 40  # points of the box at which the sign of a candidate is looked at before a proof is tried
#: Largest degree of a polynomial that is written as a sum of squares, and most variables and functions in it.
SQUARES_DEGREE = 12
LAST_ZERO = 2  # largest whole number that is looked at as the place of a zero
#: Highest order of a zero, and most terms of a sum that are written over one denominator to find its limit.
MOST_ORDER = 4
ZERO_TERMS = 8  # most terms of a sum that is looked at for zeros

# --- evidence: cells of a function
CELL_SLOPES = 0.1  # largest spread of the slopes on a cell, as a fraction of the steepest slope
FIRST_CELLS = 48  # cells of equal width to begin with

# --- evidence: definedness
DEFINED_PARTS = 20_000  # most parts of the box in the search for one on which the formula is defined
SMALLEST_PART = 2.0**-36  # least width of a part, as a fraction of the box
SUGGESTION_VARIABLES = 3  # most variables at fault for which a refusal suggests a box

# --- evidence: finder
ERROR_ROOM = 0.1  # fraction by which an argument may be further off than was found
USUAL_SEARCH = 3e6  # microseconds of work for the evidence of one proof
SEARCH_PART = 0.2  # fraction of the remaining work for the evidence of one proof, if that is more

# --- evidence: parts for the flow of errors
FLOW_PARTS = 1500  # most parts of the box
FLOW_WORST = 0.85  # fraction of the worst bound above which a part is cut

# --- evidence: pieces of grids
GRID_TIGHTNESS = 1.5  # ratio of the bound of a grid's error, or of a slope, to one that occurs
SOFTMAX_LOSS = 0.01  # largest part of a weight that its series may leave out

# --- evidence: cells of a partition
PARTITION_ROUNDS = 8  # most rounds of cuts
PARTITION_CUTS = 200_000  # most cells cut in a round

# --- evidence: trees of ranges
#: Most variables whose ends are combined into corners to look at; of more, 2 to this power corners at random.
RANGE_CORNERS = 8

# --- evidence: pieces of tables
PIECE_TIGHTNESS = 1.08  # ratio of the bound of an error to an error that occurs
PIECE_NOISE = 2.0**-60  # fraction of |f| below which an error is not refined
#: Most pieces of a table or cells of a function, and most parts of the box that are looked at for one sign or for a
#: smaller box that a refusal suggests.
MOST_PIECES = 600
PIECE_OVERHANG = 1e-3  # fraction of an interval by which its pieces may reach beyond it

# --- evidence: claims about wires
CLAIM_PARTS = 4  # most independent parts of an expression that are varied together
CLAIM_GAIN = 1e-4  # least part of its width by which a stored claim tightens a range
#: Most nodes of an expression that is searched for repeated parts or whose sign is a candidate, and most terms of a
#: polynomial that is written as a sum of squares.
CLAIM_NODES = 150

# --- gallery: yun
MAX_CONTEXTS = 1024  # most contexts (cells of the box)
#: Pieces of a cell along an axis, and of all cells together: the mean on a cell is proven piece by piece.
YUN_PIECES, MAX_YUN_PIECES = 8, 40_000

# --- gallery: local polynomials
DEGREES = (2, 3, 1)  # degrees in the order they are tried; a degree that takes more numbers than another is given up
NOISE = 0.05  # noise of the format, in tolerances, that is no reason to look for another degree
FINER_LOCAL_CELLS = (1.0, 1.5, 3.0)  # factors by which cells are made finer, tried in turn
MORE_CELLS = 1.25  # factor by which an axis is cut finer
EXTRA_POINTS = 2  # Chebyshev points of a cell beyond those that determine a polynomial

# --- gallery: attention only
LINE_ERROR = 1e-3  # error of the first layer, as a fraction of the narrowest cell

# --- gallery: memories
MAX_SAMPLES = 100_000  # most samples of one memory
DIRECTIONS = 6  # directions tried for a compact memory
OFFSETS = 1024  # offsets of a run that are tried
BUCKET_WIDTHS = (0.3, 0.4, 0.55, 0.75, 1.0, 1.4)  # widths of a bucket that are tried, in mean distances of samples
