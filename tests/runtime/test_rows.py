"""Which points lie outside a box."""

import numpy as np
import pytest

from transformula.formula.given_box import box_of
from transformula.runtime.input_rows import FOLD, Ends


@pytest.mark.parametrize("count", [1, FOLD - 1, FOLD, 3 * FOLD + 7])
def test_a_value_outside_the_box_is_found_wherever_it_is(count):
    ends = Ends(box_of("x=0..1, y=-1..2"))
    for place in {0, count // 2, count - 1}:
        for column, value, name in ((0, -0.1, "x"), (0, 1.1, "x"), (1, 2.5, "y"), (1, -1.5, "y")):
            x = np.full((count, 2), 0.5)
            assert ends.outside(x) is None
            x[place, column] = value
            assert ends.outside(x) == name
    assert ends.outside(x[:0]) is None
