"""The folders outside a table into which new data files go, and which file goes into which (table-kinds.md §3)."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from zlib import crc32

from paimon_stream.errors import InvalidOption
from paimon_stream.format.murmur import murmur3
from paimon_stream.options import EXTERNAL_FS, EXTERNAL_PATHS, EXTERNAL_STRATEGY, EXTERNAL_WEIGHTS, Options
from paimon_stream.storage.external import shown_root
from paimon_stream.storage.location import scheme_of, shown_location


@dataclass(frozen=True, slots=True)
class ExternalPaths:
    """The external roots of a table, as `_EXTERNAL_PATH` begins. Without any, new files lie in the table. With
    `weights`, one for each root, files go to the roots in that proportion, else to each in turn."""

    roots: tuple[str, ...] = ()
    weights: tuple[int, ...] = ()
    has_entropy: bool = False

    @classmethod
    def of(cls, options: Options) -> "ExternalPaths | None":
        """What the table's options say; None for a table that never had external paths. Raises `InvalidOption` for
        a path without a scheme, and for a strategy whose scheme or weights do not fit the paths."""
        strategy, paths = options.value(EXTERNAL_STRATEGY), options.value(EXTERNAL_PATHS)
        if not paths or strategy == "none":
            return cls() if paths else None
        roots = tuple(map(_as_java_prints, paths.split(",")))
        if strategy == "specific-fs":
            roots = tuple(one for one in roots if scheme_of(one) == options.value(EXTERNAL_FS))
        weights = options.value(EXTERNAL_WEIGHTS) if strategy == "weight-robin" else ()
        if not roots or (weights and len(weights) != len(roots)):
            fitting = f"{EXTERNAL_FS.key!r} one path's scheme, or {EXTERNAL_WEIGHTS.key!r} one number for each path"
            raise _wrong(strategy, f"{len(roots)} paths and {len(weights)} weights. Give {fitting}")
        return cls(roots, weights, strategy == "entropy-inject")

    def place(self, folder: str, name: str, turn: int) -> str:
        """The path of a new data file of this name, as the table's storage shows it. `folder` is that of its bucket,
        and `turn` grows by one with each file of a writer."""
        if not self.roots:
            return f"{folder}/{name}"
        at = turn % len(self.roots)
        if self.weights:
            at = bisect_right([*accumulate(self.weights)], crc32(name.encode()) % sum(self.weights))
        if self.has_entropy:
            bits = f"{murmur3(name.encode(), 0) & 0xFFFFF:020b}"
            folder = "/".join((folder, bits[:4], bits[4:8], bits[8:12], bits[12:]))
        return f"{shown_root(self.roots[at])}{folder}/{name}"


def _as_java_prints(text: str) -> str:
    """The path as Java's `Path` prints it: `file:/x` for `file:///x/`."""
    text = text.strip()
    scheme, _, rest = text.partition(":")
    if not scheme_of(text):
        raise _wrong(
            shown_location(text), "a path without a scheme. Give file:///folder, s3://bucket/folder or the like"
        )
    host, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return f"{scheme}:{host and '//'}{host}{re.sub('/+', '/', f'/{path}').rstrip('/')}"


def _wrong(value: str, why: str) -> InvalidOption:
    return InvalidOption(f"{EXTERNAL_PATHS.key!r} with {value!r}: {why}.", option=EXTERNAL_PATHS.key, value=value)
