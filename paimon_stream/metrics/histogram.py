"""The newest values of a quantity and their distribution, as in Java Paimon's histograms."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

PARTS: Final = ("count", "min", "max", "mean", "p50", "p95", "p99")
"""What a distribution says. `count` counts all values ever added; the other parts describe the window."""


class Histogram:
    """Keeps the newest `window` values (100, as in Java), so its memory is bounded."""

    def __init__(self, window: int = 100) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._count = 0

    def update(self, value: float) -> None:
        """Adds a value."""
        self._values.append(value)
        self._count += 1

    def distribution(self) -> Mapping[str, float]:
        """The present distribution by part (`PARTS`); all 0 if there are no values."""
        values = sorted(self._values) or [0.0]
        mean = sum(values) / len(values)
        quantiles = (_quantile(values, share) for share in (0.50, 0.95, 0.99))
        return dict(zip(PARTS, (self._count, values[0], values[-1], mean, *quantiles), strict=True))


def _quantile(ascending: Sequence[float], share: float) -> float:
    """The quantile as estimated by Apache Commons Math, which Java's histogram uses: the value at position
    share · (n + 1), counted from 1, interpolated linearly, and never outside the range of the values."""
    position = share * (len(ascending) + 1)
    below = int(position)
    if below < 1:
        return ascending[0]
    if below >= len(ascending):
        return ascending[-1]
    return ascending[below - 1] + (position - below) * (ascending[below] - ascending[below - 1])
