"""Finds the names of files in the bytes of a manifest, without decoding its records."""

from collections.abc import Iterable
from typing import Final

from paimon_stream.format.names import LONGEST_NAME

PREFIX_BYTES: Final = 5
"""How many bytes at the beginning of a name are compared."""

MAX_PREFIXES: Final = 16
"""With more different prefixes than this, only the first byte of each name is compared."""


class Mentions:
    """Finds names that begin like one of `names` in the bytes of a manifest, without decoding its
    records.

    Avro stores a string as its length and its plain bytes, so a manifest's blocks have every name
    in full. Looking for the wanted beginnings is many times faster than decoding 25 fields of every
    record. Invariant: every name with one of the prefixes is found, in any field. Bytes that merely
    look like a name may be found, too: callers ask which files are still in use, so that does no
    harm.

    >>> Mentions([b"data-1.avro"]).hashes(bytes([0, 22]) + b"data-2.avro") == [hash(b"data-2.avro")]
    True
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        prefixes = {name[:PREFIX_BYTES] for name in names}
        if len(prefixes) > MAX_PREFIXES:
            prefixes = {prefix[:1] for prefix in prefixes}
        self._prefixes = sorted(prefixes)

    def hashes(self, block: bytes) -> list[int]:
        """The hashes of the names in a decompressed block, and perhaps of bytes that are not
        names.
        """
        found: list[int] = []
        for prefix in self._prefixes:
            start = block.find(prefix, 1)
            while (
                start > 0
            ):  # step by one byte, because bytes that look like a name may overlap a name
                _note(block, start, found)
                start = block.find(prefix, start + 1)
        return found


def _note(block: bytes, start: int, found: list[int]) -> None:
    """Records the string that starts at `start`, if the bytes before it can be its length (zig-zag,
    seven bits per byte). Two bytes of length are enough for every file name.
    """
    last = block[start - 1]
    if last > 0x7F:
        return
    found.append(hash(block[start : start + (last >> 1)]))
    if start > 1 and (first := block[start - 2]) > 0x7F:
        size = (last << 7 | first & 0x7F) >> 1
        if (
            size <= LONGEST_NAME
        ):  # in crafted bytes, longer strings could overlap at every byte: hashing takes minutes
            found.append(hash(block[start : start + size]))
