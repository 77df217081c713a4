"""The newest values of a quantity and their distribution, as in Java Paimon's histograms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Distribution", "Histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The values in a histogram's window; all 0 if there are none. `count` counts all values ever added."""

    count: int = 0
    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


class Histogram:
    """Keeps the newest `window` values (100, as in Java), so its memory is bounded."""

    def __init__(self, window: int = 100) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._count = 0

    def update(self, value: float) -> None:
        """Adds a value."""
        self._values.append(value)
        self._count += 1

    def distribution(self) -> Distribution:
        """The present distribution."""
        values = sorted(self._values)
        if not values:
            return Distribution()
        return Distribution(
            count=self._count,
            min=values[0],
            max=values[-1],
            mean=sum(values) / len(values),
            p50=_quantile(values, 0.50),
            p95=_quantile(values, 0.95),
            p99=_quantile(values, 0.99),
        )


def _quantile(ascending: Iterable[float], share: float) -> float:
    """The quantile as estimated by Apache Commons Math, which Java's histogram uses: the value at position
    share · (n + 1), counted from 1, interpolated linearly, and never outside the range of the values."""
    values = list(ascending)
    position = share * (len(values) + 1)
    below = int(position)
    if below < 1:
        return values[0]
    if below >= len(values):
        return values[-1]
    return values[below - 1] + (position - below) * (values[below] - values[below - 1])
