"""Finds the names of files in the bytes of a manifest, without decoding its records."""

from collections.abc import Iterable
from typing import Final

from paimon_stream.format.names import LONGEST_NAME

PREFIX_BYTES: Final = 5
"""How many bytes at the beginning of a name are compared."""

MAX_PREFIXES: Final = 16
"""With more different prefixes than this, only the first byte of each name is compared."""


class Mentions:
    """Finds the names in the bytes of a manifest that begin like a wanted name, without decoding
    the records.

    Avro stores a string as its length and its plain bytes, so the blocks of a manifest have every
    name in full. It is many times faster to search for the beginnings of the wanted names than to
    decode 25 fields of every record. Invariant: every name with one of these beginnings is found,
    in any field. Bytes that merely look like a name may be found, too. That does no harm, because
    callers ask which files are still in use.

    >>> Mentions([b"data-1.avro"]).hashes(bytes([0, 22]) + b"data-2.avro") == [hash(b"data-2.avro")]
    True
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        """Prepares the search. `names` are the wanted names."""
        prefixes = {name[:PREFIX_BYTES] for name in names}
        if len(prefixes) > MAX_PREFIXES:
            prefixes = {prefix[:1] for prefix in prefixes}
        self._prefixes = sorted(prefixes)

    def hashes(self, block: bytes) -> list[int]:
        """The hashes of the names in a decompressed block. There may also be hashes of bytes that
        are not names.
        """
        hashes: list[int] = []
        for prefix in self._prefixes:
            start = block.find(prefix, 1)  # a name has at least a byte of length before it
            while start > 0:
                _add_hashes(block, start, hashes)
                # The search continues at the next byte, because bytes that look like a name may
                # overlap a real one.
                start = block.find(prefix, start + 1)
        return hashes


def _add_hashes(block: bytes, start: int, hashes: list[int]) -> None:
    """Adds the hash of the string that starts at `start`, if the bytes before it can be its length
    (zig-zag, seven bits per byte). Two bytes of length are enough for every file name. If both one
    and two bytes can be the length, the hashes of both strings are added.
    """
    last_byte = block[start - 1]
    if last_byte > 0x7F:
        return
    hashes.append(hash(block[start : start + (last_byte >> 1)]))
    if start == 1:
        return
    first_byte = block[start - 2]
    if first_byte > 0x7F:
        size = ((last_byte << 7) | (first_byte & 0x7F)) >> 1
        # In crafted bytes, longer strings could overlap at every byte, and hashing them would take
        # minutes.
        if size <= LONGEST_NAME:
            hashes.append(hash(block[start : start + size]))
