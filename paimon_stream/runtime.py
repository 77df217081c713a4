"""Time, random numbers and ids. This is the only module that reads a clock or draws random numbers.
Code that needs a clock or random numbers takes a `Runtime`. `system()` is the real runtime. The
runtime of `simulated(seed)` has its own clock, never sleeps, and always gives the same values for
the same seed.
"""

import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone


class Clock:
    """Tells the time of this machine, and waits."""

    def now_millis(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def local_millis(self) -> int:
        """The local time in milliseconds, counted as if it were UTC (format.md §4.4,
        `_CREATION_TIME`).
        """
        now = datetime.now(timezone.utc).astimezone()
        offset = now.utcoffset()
        shift = 0 if offset is None else int(offset.total_seconds() * 1000)
        return self.now_millis() + shift

    def monotonic(self) -> float:
        """The number of seconds since an arbitrary start. The value never decreases."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Waits for this many seconds."""
        time.sleep(seconds)


class Rng:
    """Uniform random numbers from the operating system."""

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        return random.SystemRandom().randrange(bound)


class IdSource:
    """A source of unique names."""

    def uuid(self) -> str:
        """A random RFC 4122 uuid, lower case, with dashes."""
        return str(uuid.uuid4())


@dataclass(slots=True)
class SimulatedClock(Clock):
    """A clock that moves only by `advance` or `sleep`. It is public, so that users can test with
    it.

    Attributes:
        millis: the present time of this clock, in epoch milliseconds.
    """

    millis: int = 1_700_000_000_000

    def now_millis(self) -> int:
        """The present time of this clock."""
        return self.millis

    def local_millis(self) -> int:
        """The same as `now_millis`, because the zone of this clock is UTC."""
        return self.millis

    def monotonic(self) -> float:
        """The present time in seconds."""
        return self.millis / 1000

    def sleep(self, seconds: float) -> None:
        """Advances the clock at once instead of waiting."""
        self.advance(round(seconds * 1000))

    def advance(self, millis: int) -> None:
        """Moves the clock forward by this many milliseconds."""
        self.millis += millis


@dataclass(slots=True)
class _SeededChance(Rng, IdSource):
    """Random numbers and ids that depend only on the seed of their source."""

    source: random.Random

    def below(self, bound: int) -> int:
        return self.source.randrange(bound)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.source.getrandbits(128), version=4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The clock, the random numbers and the ids that a component uses."""

    clock: Clock = field(default_factory=Clock)
    rng: Rng = field(default_factory=Rng)
    ids: IdSource = field(default_factory=IdSource)


def system() -> Runtime:
    """The real clock, random numbers from the operating system, and random uuids."""
    return Runtime()


def simulated(seed: int, clock: SimulatedClock | None = None) -> Runtime:
    """A runtime that always gives the same values for the same seed, and never waits."""
    chance = _SeededChance(random.Random(seed))
    return Runtime(clock=clock or SimulatedClock(), rng=chance, ids=chance)
