"""Finds the file names in the bytes of a manifest without decoding its records.

Avro stores a string as its length followed by its plain bytes, so every name that a manifest refers to is in
its blocks in full. Looking only for strings that begin like the wanted names is many times faster than
decoding 25 fields of every record.

Invariant: every name that begins with one of the prefixes and that a record holds, in any field, is found. Bytes that
merely look like a name may be found, too. Callers ask which files are still in use, so that does no harm.
"""

from collections.abc import Iterable
from typing import Final

PREFIX_BYTES: Final = 5
"""How many bytes at the beginning of a name are compared."""

_LONGEST: Final = 255
"""The longest name of a file, in bytes (`format/names.py`). In crafted bytes, longer strings could overlap at
every byte, and hashing them all would take minutes."""

MAX_PREFIXES: Final = 16
"""With more different prefixes than this, only the first byte of each name is compared."""


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
        """The hashes of the names in a decompressed block, and perhaps of bytes that are not names."""
        found: list[int] = []
        for prefix in self._prefixes:
            start = block.find(prefix, 1)
            while start > 0:  # step by one byte, because bytes that look like a name may overlap a name
                _note(block, start, found)
                start = block.find(prefix, start + 1)
        return found


def _note(block: bytes, start: int, found: list[int]) -> None:
    """Records the string that starts at `start`, if the bytes before it can be its length (zig-zag, seven
    bits per byte). Two bytes of length are enough for every file name."""
    last = block[start - 1]
    if last > 0x7F:
        return
    found.append(hash(block[start : start + (last >> 1)]))
    if start > 1 and (first := block[start - 2]) > 0x7F:
        size = (last << 7 | first & 0x7F) >> 1
        if size <= _LONGEST:
            found.append(hash(block[start : start + size]))
