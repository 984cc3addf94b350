"""The attempts of one construction: what a failure says about those still to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transformula.budget import SECOND
from transformula.compiler.attempts import Attempt
from transformula.compiler.constructions import Construction
from transformula.errors import NotProvenError, RefutedError, UnboundedError, closer, closest_bound

#: Seconds of work after which an attempt that has proven nothing at all speaks against others like it.
_LONG = 3.0
#: Within this factor of the tolerance a search has come close, if its rounding is no more than this part of it.
_CLOSE, _QUIET = 10.0, 0.8
#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0
#: Bounds this many times too large are not the tables' fault.
_FAR_OFF = 1000.0
#: Tables that are no more accurate do not help where the bound is so many times too large.
_TOO_COARSE = 2.0

#: What the kernel says where a formula is too long for it, whatever the tables are.
_UNCOMPARED = "normal form"


class Trial:
    """One construction under trial: the attempts that failed so far, and the one that came closest."""

    def __init__(self, construction: Construction, eps: float | None) -> None:
        self.construction, self.eps = construction, eps
        self.closest: NotProvenError | None = None
        self.tried: Attempt | None = None
        self.error: NotProvenError | None = None
        self.hopeless: set[int] = set()  # groups of attempts
        self.strained: set[int] = set()  # those that round too much: others are tried first

    def is_worth(self, attempt: Attempt) -> bool:
        """Whether an attempt may do better than those before it."""
        return attempt.group not in self.hopeless and not self._is_no_better(attempt)

    def in_turn(self, attempts: Iterable[Attempt]) -> Iterator[Attempt]:
        """The attempts, last those of groups in which one has rounded more than the tolerance."""
        later = []
        for attempt in attempts:
            if attempt.group in self.strained:
                later.append(attempt)
            else:
                yield attempt
        yield from later

    def failed(self, attempt: Attempt, error: NotProvenError, work: float) -> bool:
        """Learn from a failed attempt and the work it took; True if it took long and shows nothing at all."""
        refuted = isinstance(error, RefutedError)
        again = refuted and self.error is not None and str(error) == str(self.error)  # whatever the tables are
        uncompared = refuted and _UNCOMPARED in str(error)
        in_vain = self.shows_nothing(error) and work > _LONG * SECOND and not uncompared
        if again or in_vain or uncompared or self.is_far_off(error):
            self.hopeless.add(attempt.group)
        if self.eps is not None and error.best_bound is not None and (error.rounding or 0.0) > self.eps:
            self.strained.add(attempt.group)
        self.tried, self.error, self.closest = attempt, error, closer(error, self.closest)
        return in_vain

    @staticmethod
    def shows_nothing(error: NotProvenError) -> bool:
        """Whether a failure does not even say how far off it is."""
        return isinstance(error, RefutedError) or (error.best_bound is None and error.measured is None)

    def is_far_off(self, error: NotProvenError) -> bool:
        """Whether attempts of the same group, which differ only in their tables, would fail as well."""
        rounding, bound = error.rounding or 0.0, error.best_bound or 0.0
        far = self.eps is not None and (rounding > _HOPELESS * self.eps or bound > _FAR_OFF * self.eps)
        return far or isinstance(error, UnboundedError)

    def _is_no_better(self, attempt: Attempt) -> bool:
        """Whether its tables are no more accurate than those of the last attempt, which were far too coarse."""
        tried, error = self.tried, self.error
        if tried is None or error is None or self.eps is None or error.best_bound is None:
            return False
        if attempt.group != tried.group or attempt.tables is None or tried.tables is None:
            return False
        if attempt.tables < tried.tables:
            return False
        return error.best_bound > _TOO_COARSE * self.eps and (error.rounding or 0.0) < error.best_bound / 2

    def refusal(self, dtype: str) -> NotProvenError:
        """The refusal when no attempt is left."""
        closest = self.closest
        assert closest is not None, "a construction yields attempts or raises"
        if not isinstance(closest, RefutedError):
            return closest
        if _UNCOMPARED in str(closest):
            return NotProvenError(
                f"no {self.construction.name} could be compared with the formula: {closest}; "
                "write the formula with fewer factors or terms, or compile its parts",
                place=closest.place,
            )
        # said of weights that were just made: errors went too far
        other = "" if dtype == "float64" else ", or use float64"
        return NotProvenError(
            f"no {self.construction.name} could be proven, because errors grow too much on the way: {closest}; "
            f"ask for a larger eps or take a smaller box{other}",
            place=closest.place,
        )


def is_close(error: NotProvenError, eps: float) -> bool:
    """Whether a little more work might help: the error is known, not far off, and not caused by rounding."""
    return closest_bound(error) <= _CLOSE * eps and (error.rounding or 0.0) <= _QUIET * eps
