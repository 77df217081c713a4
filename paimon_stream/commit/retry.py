"""How long and how often a commit is retried (semantics.md §2.7)."""

from dataclasses import dataclass, field

from paimon_stream.options import (
    COMMIT_MAX_RETRIES,
    COMMIT_MAX_RETRY_WAIT,
    COMMIT_MIN_RETRY_WAIT,
    COMMIT_TIMEOUT,
    Options,
)
from paimon_stream.runtime import Runtime


@dataclass(slots=True, kw_only=True)
class Patience:
    """The remaining retries and time of one commit. Waits double from the shortest to the longest, plus up to a fifth
    of jitter, so that writers that collided do not collide again. Limits are milliseconds, except `max_retries`."""

    runtime: Runtime
    timeout: int
    max_retries: int
    min_wait: int
    max_wait: int
    retries: int = field(default=0, init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    @classmethod
    def of(cls, options: Options, runtime: Runtime) -> "Patience":
        """With the limits in the table's options. Raises `InvalidOption`."""
        return cls(
            runtime=runtime,
            timeout=options.value(COMMIT_TIMEOUT),
            max_retries=options.value(COMMIT_MAX_RETRIES),
            min_wait=options.value(COMMIT_MIN_RETRY_WAIT),
            max_wait=options.value(COMMIT_MAX_RETRY_WAIT),
        )

    @property
    def elapsed_millis(self) -> float:
        """The time since the commit began."""
        return (self.runtime.clock.monotonic() - self._began) * 1000

    @property
    def exhausted(self) -> bool:
        """Whether there must be no further retry."""
        return self.retries >= self.max_retries or self.elapsed_millis > self.timeout

    def restart(self) -> None:
        """Starts the time anew, because the process was paused, which is no sign of contention."""
        self._began = self.runtime.clock.monotonic()

    def wait(self) -> None:
        """Waits before the next retry, and counts it."""
        millis = min(self.min_wait * 2 ** min(self.retries, 40), self.max_wait)
        millis += self.runtime.rng.below(max(1, millis // 5))
        self.retries += 1
        self.runtime.clock.sleep(millis / 1000)
