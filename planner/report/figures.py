"""Numbers as people read them: one unit per table, three or so significant digits, thousands apart."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit to read amounts in: its name, how much of the SI unit it is, and the decimals that matter."""

    name: str
    size: float
    decimals: int = 2

    def of(self, amount: float) -> str:
        """Returns `amount` in this unit, without the unit's name."""
        return f"{amount / self.size:,.{self.decimals}f}"

    def text(self, amount: float) -> str:
        """Returns `amount` in this unit, with the unit's name."""
        return f"{self.of(amount)} {self.name}"

    def shows(self, amount: float) -> bool:
        """Returns whether `amount` in this unit is more than zeros."""
        return amount == 0 or abs(amount) >= self.size * 10**-self.decimals


_BYTES = (Unit("TiB", 1024**4), Unit("GiB", 1024**3), Unit("MiB", 1024**2), Unit("KiB", 1024), Unit("B", 1, 0))
_SECONDS = (Unit("s", 1), Unit("ms", 1e-3), Unit("µs", 1e-6), Unit("ns", 1e-9))
_COUNTS = (Unit("T", 1e12), Unit("B", 1e9), Unit("M", 1e6), Unit("K", 1e3))
_MOST_IN_PERCENT, _MOST_AS_FACTOR = 11.0, 1e6
_FLOP = (Unit("PFLOP", 1e15), Unit("TFLOP", 1e12), Unit("GFLOP", 1e9), Unit("MFLOP", 1e6))


def bytes_unit(largest_bytes: float) -> Unit:
    """Returns the unit for a table whose largest amount is `largest_bytes`."""
    return _for_largest(next((unit for unit in _BYTES if abs(largest_bytes) >= unit.size), _BYTES[-1]), largest_bytes)


def seconds_unit(largest_s: float) -> Unit:
    """Returns the unit for a table whose largest amount is `largest_s` seconds; ms up to ten seconds."""
    unit = next((unit for unit in _SECONDS if abs(largest_s) >= unit.size), _SECONDS[-1])
    return _for_largest(_SECONDS[1] if 1 <= abs(largest_s) < 10 else unit, largest_s)


def _for_largest(unit: Unit, largest: float) -> Unit:
    value = round(abs(largest) / unit.size, unit.decimals)
    return replace(unit, decimals=min(unit.decimals, 0 if value >= 1000 else 1 if value >= 100 else 2))


def bytes_text(num_bytes: float) -> str:
    """Returns bytes with their unit: `41.20 GiB`."""
    return bytes_unit(num_bytes).text(num_bytes)


def bytes_in(unit: Unit, num_bytes: float) -> str:
    """Returns bytes in the unit of their table, or in their own where that would be `0.00`."""
    return unit.text(num_bytes) if unit.shows(num_bytes) else bytes_text(num_bytes)


def seconds_in(unit: Unit, seconds: float) -> str:
    """Returns seconds in the unit of their table, or in their own where that would be `0.00`."""
    return unit.text(seconds) if unit.shows(seconds) else seconds_text(seconds)


def seconds_text(seconds: float) -> str:
    """Returns seconds with their unit: `182.4 ms`."""
    return "0 s" if seconds == 0 else seconds_unit(seconds).text(seconds)


def count_text(number: float) -> str:
    """Returns a large count in short: `84.21 M`, `7.24 B`."""
    unit = next((unit for unit in _COUNTS if number >= unit.size), None)
    return f"{number:,.0f}" if unit is None else _for_largest(unit, number).text(number)


def flop_text(flop: float) -> str:
    """Returns floating-point operations with their unit: `1.23 TFLOP`."""
    unit = next((unit for unit in _FLOP if flop >= unit.size), None)
    return f"{flop:,.0f} FLOP" if unit is None else _for_largest(unit, flop).text(flop)


def share_text(part: float, whole: float) -> str:
    """Returns part / whole in whole per cent, `<1%` for what is there but small."""
    percent = 100 * part / whole if whole else 0.0
    return "<1%" if 0 < percent < 1 else f"{percent:.0f}%"


def difference_text(measured: float, predicted: float) -> str:
    """Returns how far a measurement is from its prediction: `+2.1%`, `×12`, `exact`, `-` if that is nothing or tiny."""
    if measured == predicted:
        return "exact"
    if not predicted:
        return "-"
    ratio = measured / predicted
    if ratio < _MOST_IN_PERCENT:
        return f"{100 * (ratio - 1):+.1f}%"
    return f"×{ratio:,.0f}" if ratio < _MOST_AS_FACTOR else "-"


def same_to_a_thousandth(amount: float, other: float) -> bool:
    """Returns whether two amounts differ by nothing that `0.0%` would show."""
    return abs(amount - other) < 0.0005 * abs(other) or amount == other


def slower_text(amount: float, reference: float) -> str:
    """Returns `5.2% slower`, `3.0% faster`, or from tenfold on `18 times as slow`."""
    ratio = amount / reference
    if ratio >= _MOST_IN_PERCENT:
        return f"{ratio:,.0f} times as slow"
    return f"{abs(ratio - 1):.1%} {'slower' if ratio >= 1 else 'faster'}"


def plural(number: int, noun: str) -> str:
    """Returns `1 rank`, `4 ranks`, `2 micro-batches`."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number:,} {noun}{ending}"
