"""Physical constants in SI units, for the box: ``on={"c": constants.c, "v": (0, 1e8)}`` or ``--const c``.

A name in a formula never means one of these unless it is asked for. Values are those of the SI (2019) where they are
exact, and CODATA 2018 for G, eps0 and mu0 (E. Tiesinga et al., Rev. Mod. Phys. 93, 025010, 2021).
"""

from __future__ import annotations

from decimal import Decimal

from transformula.errors import InputError

#: Each constant's name in words, and its unit.
ABOUT = {
    "c": "the speed of light in m/s",
    "h": "the Planck constant in J s",
    "qe": "the elementary charge in C",
    "kB": "the Boltzmann constant in J/K",
    "NA": "the Avogadro constant in 1/mol",
    "R": "the molar gas constant in J/(mol K)",
    "F": "the Faraday constant in C/mol",
    "g": "the standard acceleration of gravity in m/s²",
    "atm": "the standard atmosphere in Pa",
    "G": "the Newtonian constant of gravitation in m³/(kg s²)",
    "eps0": "the vacuum electric permittivity in F/m",
    "mu0": "the vacuum magnetic permeability in N/A²",
}

c = Decimal("299792458")
h = Decimal("6.62607015e-34")
qe = Decimal("1.602176634e-19")
kB = Decimal("1.380649e-23")
NA = Decimal("6.02214076e23")
R = Decimal("8.31446261815324")  # NA times kB
F = Decimal("96485.3321233100184")  # NA times qe
g = Decimal("9.80665")
atm = Decimal("101325")
G = Decimal("6.67430e-11")
eps0 = Decimal("8.8541878128e-12")
mu0 = Decimal("1.25663706212e-6")


def as_box(names: str) -> dict[str, Decimal]:
    """The constants of a list of names, as entries of a box.

    Examples
    --------
    >>> as_box("c, g")
    {'c': Decimal('299792458'), 'g': Decimal('9.80665')}
    """
    wanted = [name.strip() for name in names.split(",")]
    if unknown := next((name for name in wanted if name not in ABOUT), None):
        raise InputError(f"there is no constant {unknown!r}: known are {', '.join(ABOUT)}")
    return {name: globals()[name] for name in wanted}
