"""Physical constants in SI units, for the box: ``on={"c": constants.c, "v": (0, 1e8)}`` or ``--const c``.

A name in a formula never means one of these unless it is asked for. Values are those of the SI (2019) where they are
exact, and CODATA 2018 for G, eps0 and mu0 (E. Tiesinga et al., Rev. Mod. Phys. 93, 025010, 2021).
"""

from __future__ import annotations

from decimal import Decimal

from transformula.errors import InputError

#: Speed of light, m/s.
c = Decimal("299792458")
#: Planck constant, J s.
h = Decimal("6.62607015e-34")
#: Elementary charge, C.
qe = Decimal("1.602176634e-19")
#: Boltzmann constant, J/K.
kB = Decimal("1.380649e-23")
#: Avogadro constant, 1/mol.
NA = Decimal("6.02214076e23")
#: Molar gas constant, J/(mol K): NA times kB.
R = Decimal("8.31446261815324")
#: Faraday constant, C/mol: NA times qe.
F = Decimal("96485.3321233100184")
#: Standard acceleration of gravity, m/s².
g = Decimal("9.80665")
#: Standard atmosphere, Pa.
atm = Decimal("101325")
#: Newtonian constant of gravitation, m³/(kg s²).
G = Decimal("6.67430e-11")
#: Vacuum electric permittivity, F/m.
eps0 = Decimal("8.8541878128e-12")
#: Vacuum magnetic permeability, N/A².
mu0 = Decimal("1.25663706212e-6")

_NAMES = tuple(name for name, value in list(globals().items()) if isinstance(value, Decimal))


def as_box(names: str) -> dict[str, Decimal]:
    """The constants of a list of names, as entries of a box.

    Examples
    --------
    >>> as_box("c, g")
    {'c': Decimal('299792458'), 'g': Decimal('9.80665')}
    """
    wanted = [name.strip() for name in names.split(",")]
    if unknown := next((name for name in wanted if name not in _NAMES), None):
        raise InputError(f"there is no constant {unknown!r}: known are {', '.join(_NAMES)}")
    return {name: globals()[name] for name in wanted}
