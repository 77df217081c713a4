"""What the settings of object stores and of HDFS have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientSettings:
    """The settings of a folder that a client serves. Pickles may hold secrets, so they go to
    executors only; `repr` shows none.

    Attributes:
        kind: the kind of store: `s3`, `gcs`, `azure` or `hdfs`.
        location: the root as a user wrote it, without credentials and without a slash at its end.
        prefix: the root's key or path, never empty.
        max_outage_millis: how long requests wait for a store that is down, if it has answered once.
    """

    kind: str
    location: str
    prefix: str
    max_outage_millis: int = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"
