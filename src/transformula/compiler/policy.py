"""Numeric constants of the search, by stage: what may be tuned without touching a proof.

Modules read them as ``policy.NAME`` where they use them, so that ``benchmarks/ablation.py`` can change one at a time
and report what it buys in tokens, bound, work and refusals. Work on tables is in floating-point operations.
"""

from __future__ import annotations

# --- tables: samples
LEAF_BLOCK = 64  # leaves whose samples are evaluated in one call of the function
MAX_LEAVES = 1500  # leaves of an interval; a function that needs more oscillates too often for any table
FIRST_CUTS = (0.37, 0.71)  # first cuts of an interval, as fractions; unequal, so that no periodic function aliases
FINE_LEAF = 1e-3  # width of a leaf over that of its interval below which samples are centred on it
SINGULAR_LEAF = 1e-6  # width of a leaf over that of its interval below which the function counts as singular there
RESOLUTION = 0.03  # error of the interpolants on the leaves, as a fraction of the tolerance
DENSE_POINTS = 2000  # points on which a finished table is measured
POINTS_PER_TOKEN = 10  # sample points of a fit for each token: about three parameters, oversampled threefold
LAST_POINTS_PER_TOKEN = 25  # the same for the last refinement of a table

# --- tables: acceptance
APPROXIMATION_SHARE = 0.7  # largest measured error of an accepted table, as a fraction of the tolerance
TOTAL_SHARE = 0.9  # largest measured error plus modelled rounding, as a fraction of the tolerance
MAX_SPOILED = 6  # sizes in a row that rounding alone spoils before the search gives up

# --- tables: descent
OPERATIONS_PER_MICROSECOND = 4e3  # floating-point operations of one core in a microsecond of the budget
STEP_OVERHEAD = 2e5  # floating-point operations charged for a step of one table, however small
MAX_STEP = 2.0  # largest change of a score within a token's own neighbourhood in one step
LEAST_WEIGHT = 1e-6  # least weight for which a token's value is priced, which bounds the values
STALL = 10  # steps over which the cost must fall
STALLED = 0.98  # cost after these steps, as a fraction of the cost before, above which a descent ends
HIGH_PRICE = 1e-2  # rounding that values as large as the function's range may cost, as a fraction of the tolerance

# --- tables: starts
SHARPNESS = (0.5, 1.5, 4.0, 0.15)  # overlap of neighbouring tokens, from overlapping to cell-like
OVERHANGS = (0, 1, 2)  # tokens beyond each end of the interval
DENSITY_POWERS = (1.0, 0.5, 0.0)  # exponents of the leaves' density, from fully adapted to equispaced
TURNS = (0.5, 0.1, 0.02)  # slopes by which a split token's halves differ, over the inverse of its spread
POLE_DEGREES = (6, 10, 14, 20, 28)  # degrees of the polynomials that look for a pair of poles

# --- tables: sizes
WARM_STARTS = 3  # starts made from the table of another size
QUICK_STEPS = 8  # descent steps from every start
FINALISTS = 4  # starts that are refined
LONG_STEPS = 80  # descent steps of a refinement
LAWSON_ROUNDS = 25  # rounds of reweighting towards the minimax table
WITHIN_REACH = 30.0  # factor by which reweighting may lower an error at best
HOPELESS = 300.0  # error over the goal above which a size is given up after its best start
SIZE_WORK = 1.5e9  # work on one size
GROWING_WORK = 9e9  # work on growing sizes until one is accepted
SHRINKING_WORK = 1.1e10  # work on removing tokens from an accepted table
LAST_WORK = 8e9  # work on the last refinement of a table
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
WAVE_SHARPNESS = (1.0, 0.8, 1.25)  # factors on the sharpness that theory gives
WAVE_STEPS = 4  # descent steps, and rounds of reweighting, of an oscillatory table

# --- tables: stored scores
SIMILAR = 60.0  # error of stored scores over that of their own function up to which two functions count as similar
NEIGHBOURS = 6  # stored scores tried for a size

# --- tables: exponentials
FIRST_EXPONENTIALS = 3  # terms of the first sum
RATE_SPREADS = (4.0, 7.0, 12.0, 20.0, 35.0)  # ranges of the logarithms of the rates that the first sums start from
MANY_EXPONENTIALS = 40  # terms above which no other table comes closer
MAX_NOISY_SUMS = 4  # sums within the tolerance that rounding spoils before the search gives up
RARE_SHARE = 0.02  # error that the weights of rare tokens may add, as a fraction of the tolerance
STEEP_ROUNDING = 7.0  # rounding of the steepest score, rounded twice, over the squared unit, slope and values

# --- tables: grids
GRID_SECTIONS = {2: 41, 3: 13, 4: 8}  # points of each other axis through which sections pass, by dimension
GRID_RANKS = {2: 12, 3: 20, 4: 24}  # singular vectors of the sections that are fitted, by dimension
GRID_POINTS = {2: 160, 3: 44, 4: 20}  # points of each axis on which values are solved, by dimension
MAX_AXIS_TOKENS = 64  # tokens of one axis
MAX_GRID_TOKENS = 20_000  # tokens of a grid
GRID_CAUTIONS = (1.0, 30.0, 1000.0)  # factors on the price of large values while scores are chosen
GRID_PRICES = (1.0, 10.0, 100.0, 1000.0)  # factors on the price of large values while rounding is the larger error
AXIS_WORK = 2e10  # work on one axis

# --- one layer
LOOKUP_SHARES = (1.0, 0.6, 0.3)  # fractions of the tolerance given to the solver, until a proof closes
EASY = 200.0  # tolerance over the rounding of the values, for tolerances that rounding rules out
