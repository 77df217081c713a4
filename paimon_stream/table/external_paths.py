"""The folders outside a table into which new data files go, and which file goes into which (table-kinds.md §3)."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from paimon_stream.errors import InvalidOption
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.options import EXTERNAL_FS, EXTERNAL_PATHS, EXTERNAL_STRATEGY, EXTERNAL_WEIGHTS, Options
from paimon_stream.storage.external import shown_root
from paimon_stream.storage.location import scheme_of


@dataclass(frozen=True, slots=True)
class ExternalPaths:
    """The external paths that files take in turn, as `_EXTERNAL_PATH` begins, each as often as its weight says. Without
    any, new files lie in the table. `earlier` finds the external paths of all schemas of the table, for older files."""

    turns: tuple[str, ...] = ()
    has_entropy: bool = False
    earlier: Callable[[], frozenset[str]] = field(default=frozenset, compare=False)

    def holds(self, root: str) -> bool:
        """Whether files of the table may lie below this folder. Raises `StorageError`."""
        return root in self.turns or root in self.earlier()

    @classmethod
    def of(cls, options: Options) -> "ExternalPaths | None":
        """What the table's options say; None for a table that never had external paths. Raises `InvalidOption` for
        a path without a scheme, and for a strategy whose scheme or weights do not fit the paths."""
        strategy, paths = options.value(EXTERNAL_STRATEGY), options.value(EXTERNAL_PATHS)
        if not paths or strategy == "none":
            return cls() if paths else None
        roots = external_roots(options)
        if strategy == "specific-fs":
            roots = [one for one in roots if scheme_of(one) == options.value(EXTERNAL_FS)]
        weighted = strategy == "weight-robin" and options.is_set(EXTERNAL_WEIGHTS)
        weights = options.value(EXTERNAL_WEIGHTS) if weighted else [1] * len(roots)
        if not roots or len(weights) != len(roots):
            why = f"with {strategy} it has {len(roots)} paths and {len(weights)} weights. Set scheme or weights to fit."
            raise InvalidOption(f"{EXTERNAL_PATHS.key!r}: {why}", option=EXTERNAL_PATHS.key)
        shares = [max(1, 1000 * one // sum(weights)) for one in weights] if weighted else weights
        turns = (root for root, share in zip(roots, shares, strict=True) for _ in range(share))
        return cls(tuple(turns), strategy == "entropy-inject")

    def place(self, folder: str, name: str, turn: int) -> str:
        """The path of a new data file of this name, as the table's storage shows it. `folder` is that of its bucket,
        and `turn` begins anywhere and grows by one with each file of a writer."""
        if not self.turns:
            return f"{folder}/{name}"
        if self.has_entropy:
            bits = f"{hash_bytes(name.encode(), seed=0) & 0xFFFFF:020b}"
            folder = "/".join((folder, bits[:4], bits[4:8], bits[8:12], bits[12:]))
        return f"{shown_root(self.turns[turn % len(self.turns)])}{folder}/{name}"


def external_roots(options: Options) -> list[str]:
    """The table's external paths, as `_EXTERNAL_PATH` begins, whatever the strategy is. Raises `InvalidOption`."""
    return [_as_java_prints(one.strip()) for one in options.value(EXTERNAL_PATHS).split(",") if one.strip()]


def _as_java_prints(path: str) -> str:
    """The path as Java's `Path` prints it: `file:/x` for `file:///x/`."""
    if not scheme_of(path):
        why = f"{EXTERNAL_PATHS.key!r} has a path without a scheme, {path!r}. Set it to file:///folder or the like."
        raise InvalidOption(why, option=EXTERNAL_PATHS.key, value=path)
    scheme, _, rest = path.partition(":")
    host, _, inner = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return f"{scheme}:{host and '//'}{host}{re.sub('/+', '/', f'/{inner}').rstrip('/')}"
