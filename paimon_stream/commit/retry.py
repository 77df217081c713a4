"""How long and how often a commit is retried (semantics.md §2.7)."""

from dataclasses import dataclass

from paimon_stream.options import (
    COMMIT_MAX_RETRIES,
    COMMIT_MAX_RETRY_WAIT,
    COMMIT_MIN_RETRY_WAIT,
    COMMIT_TIMEOUT,
    Options,
)
from paimon_stream.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The limits of one commit. All are milliseconds, except `max_retries`."""

    timeout: int
    max_retries: int
    min_wait: int
    max_wait: int

    @classmethod
    def of(cls, options: Options) -> "RetryPolicy":
        """The policy that the table's options set. Raises `InvalidOption`."""
        return cls(
            timeout=options.value(COMMIT_TIMEOUT),
            max_retries=options.value(COMMIT_MAX_RETRIES),
            min_wait=options.value(COMMIT_MIN_RETRY_WAIT),
            max_wait=options.value(COMMIT_MAX_RETRY_WAIT),
        )


class Patience:
    """The remaining retries and time of one commit. Waits double from the shortest to the longest, plus up to
    a fifth of jitter, so that writers that collided do not collide again."""

    def __init__(self, policy: "RetryPolicy", runtime: Runtime) -> None:
        self._policy = policy
        self._runtime = runtime
        self._began = runtime.clock.monotonic()
        self.retries = 0

    @property
    def elapsed_millis(self) -> float:
        """The time since the commit began."""
        return (self._runtime.clock.monotonic() - self._began) * 1000

    @property
    def exhausted(self) -> bool:
        """Whether there must be no further retry."""
        return self.retries >= self._policy.max_retries or self.elapsed_millis > self._policy.timeout

    def restart(self) -> None:
        """Starts the time anew, because the process was paused, which is no sign of contention."""
        self._began = self._runtime.clock.monotonic()

    def wait(self) -> None:
        """Waits before the next retry, and counts it."""
        doubled = self._policy.min_wait * 2 ** min(self.retries, 40)
        millis = min(doubled, self._policy.max_wait)
        millis += self._runtime.rng.below(max(1, millis // 5))
        self.retries += 1
        self._runtime.clock.sleep(millis / 1000)
