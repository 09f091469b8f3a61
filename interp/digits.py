"""How an estimate is written: with as many digits as its error allows, the same in every text and table."""

from __future__ import annotations

import math

MOST_PLACES = 6  # after the point; a smaller error is written as a power of ten


def plus_minus(value: float, error: float | None, *, sign: bool = False) -> str:
    """A value and its standard error, both rounded at the error's first digit (at its second where the first is a 1).

    Where the error is missing, zero or NaN, the value has four significant digits.

    >>> plus_minus(3.43412, 0.0081), plus_minus(12.3, 1.5), plus_minus(0.5, None), plus_minus(2.7, 8.3e-16)
    ('3.434 ± 0.008', '12.3 ± 1.5', '0.5', '2.7 ± 8e-16')
    >>> plus_minus(15.833, 0.31, sign=True)
    '+15.8 ± 0.3'
    """
    form = "+" if sign else ""
    if error is None or not math.isfinite(error) or error <= 0 or not math.isfinite(value):
        return f"{value:{form}.4g}"
    leading = math.floor(math.log10(error))
    places = max(0, -leading + (error < 2 * 10.0**leading))
    if places > MOST_PLACES:
        return f"{value:{form}.4g} ± {error:.0e}"
    return f"{value:{form}.{places}f} ± {error:.{places}f}"


def shortest(number: float) -> str:
    """The shortest text that reads back as the number.

    >>> shortest(5.0), shortest(0.1 + 0.2)
    ('5', '0.30000000000000004')
    """
    short = f"{number:g}"
    return short if float(short) == number else repr(number)
