"""``python -I -m transformula.kernel FOLDER [--json]``: check a model folder with the kernel alone.

One line says whether the claim holds, with the bounds that were proven. The exit status is 0 if it does,
1 if it does not, and 2 if there is no whole model folder to check.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict

# before numpy: each thread of BLAS takes address space, which the check's limit counts
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from transformula.kernel.arithmetic import at_most
from transformula.kernel.check import Verification, verify_folder
from transformula.kernel.exceptions import ModelFileError
from transformula.kernel.isolation import verify_isolated

USAGE = "usage: python -I -m transformula.kernel FOLDER [--json]"


def main(arguments: list[str]) -> int:
    """Check one folder and say so."""
    folders = [a for a in arguments if a != "--json"]
    if len(folders) != 1 or folders[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    status = None
    try:
        result = verify_folder(folders[0], verify_isolated)
    except ModelFileError as error:
        result, status = Verification(False, reasons=(str(error),)), 2
    except Exception as error:
        result = Verification(False, reasons=(f"the check stopped: {type(error).__name__}",))
    if "--json" in arguments:
        print(json.dumps({k: None if v in (math.inf, -math.inf) else v for k, v in asdict(result).items()}))
    else:
        print(line(result))
    return int(not result.verified) if status is None else status


def line(result: Verification) -> str:
    """The answer in one line."""
    if not result.verified:
        text = " ".join(f"not verified: {'; '.join(result.reasons)}".split())
        return "".join(c if " " <= c <= "~" else "?" for c in text)  # names in a hostile folder may be anything
    which = "" if result.mean is None else "the mean over the box of "
    numbers = (result.bound, result.approximation, result.rounding)
    bound, approximation, rounding = (at_most(number, 6) for number in numbers if number is not None)
    text = (
        f"verified: {which}|computed - formula| <= {bound} (approximation {approximation} + rounding {rounding}), "
        f"eps = {result.eps:.6g}"
    )
    if result.mean is None:
        return text
    return (
        f"{text}; at every point outside seams, {at_most(result.mean.seams)} of the box, it is <= "
        f"{at_most(result.mean.outside, 6)}, and |computed| <= {at_most(result.mean.largest, 6)} everywhere"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
