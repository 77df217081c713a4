"""What tests of races share: a storage on which something happens at a chosen operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paimon_stream.storage.base import Storage


@dataclass
class Meanwhile:
    """Passes everything on to `inner`, and does something just before operation number `at`."""

    inner: Storage
    at: int
    what: Callable[[], None]
    seen: int = 0

    def __getattr__(self, name: str) -> object:
        made = getattr(self.inner, name)
        if not callable(made):
            return made

        def call(*args: object) -> object:
            self.seen += 1
            if self.seen == self.at:
                self.what()
            return made(*args)

        return call

    @property
    def happened(self) -> bool:
        """Whether it came to that operation."""
        return self.seen >= self.at
