"""Numbers as a log prints them: each stands for all numbers that round to it."""

import math
import re
from typing import NamedTuple

_NUMBER = re.compile(r"[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$")


class Printed(NamedTuple):
    """The numbers that a printed one stands for."""

    value: float
    low: float
    high: float

    def __truediv__(self, other):
        """Ratio of two printed numbers, the second not negative."""
        low = self.low / other.high if other.high > 0 else math.inf
        high = self.high / other.low if other.low > 0 else math.inf
        return Printed(self.value / other.value if other.value else math.nan, low, high)

    def agrees(self, other):
        """Whether the two can be one number."""
        return self.low <= other.high and other.low <= self.high


def printed(text, scale=1.0):
    """What a printed number, in units of `scale`, stands for; None where it is no number.

    Examples
    --------
    >>> round(printed("12.5").low, 6), round(printed("1.8e+07").high), printed("N/A")
    (12.45, 18500000, None)
    """
    match = _NUMBER.match(text)
    if not match or abs(int(match[3] or 0)) > 99:
        return None
    half = 0.5 * 10.0 ** (int(match[3] or 0) - len(match[2] or ""))
    # A little more, for numbers that were rounded twice.
    half *= scale * (1 + 1e-9)
    value = float(text) * scale
    return Printed(value, max(value - half, 0.0) if value >= 0 else value - half, value + half)


def exactly(value):
    """A number that is known exactly."""
    return Printed(value, value, value)
