"""Which file names stand in the bytes of a manifest, found without decoding its records.

Avro stores a string as its length and then its bytes as they are, so whatever a manifest refers to stands
in its blocks in full. Looking only for strings that begin like names in question is many times faster
than decoding 25 fields of every record.

Invariant: every name that begins with one of the prefixes and that a record holds, in whichever field, is
found. Bytes that merely look like one may be found, too: to those who ask what is still in use that is
no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_PREFIXES", "PREFIX_BYTES", "Mentions"]

PREFIX_BYTES: Final = 5
"""How much of a name's beginning is compared."""

MAX_PREFIXES: Final = 16
"""Above this many different beginnings every position is looked at instead."""


class Mentions:
    """Finds names that begin like one of `names`.

    >>> Mentions([b"data-1.avro"]).hashes(bytes([0, 22]) + b"data-2.avro") == [hash(b"data-2.avro")]
    True
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        prefixes = {name[:PREFIX_BYTES] for name in names}
        if len(prefixes) > MAX_PREFIXES:
            prefixes = {prefix[:1] for prefix in prefixes}
        self._prefixes = sorted(prefixes)

    def hashes(self, block: bytes) -> list[int]:
        """The hashes of the names that stand in a decompressed block, and perhaps of others."""
        found: list[int] = []
        for prefix in self._prefixes:
            start = block.find(prefix, 1)
            while start > 0:  # by one byte further each time: what looks like a name may overlap one
                _note(block, start, found)
                start = block.find(prefix, start + 1)
        return found


def _note(block: bytes, start: int, found: list[int]) -> None:
    """Takes down the string that starts there, if the bytes before it can be its length (zig-zag, seven
    bits a byte). No file name is longer than two of them say."""
    last = block[start - 1]
    if last > 0x7F:
        return
    found.append(hash(block[start : start + (last >> 1)]))
    if start > 1 and (first := block[start - 2]) > 0x7F:
        size = (last << 7 | first & 0x7F) >> 1
        found.append(hash(block[start : start + size]))
