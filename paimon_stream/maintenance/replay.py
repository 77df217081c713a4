"""Replays manifests as whole columns: which files are live, added twice, or deleted without having been added.

The identity of a file is kept as a 64-bit hash. Anything odd is looked up by name before it is reported. So
two identities with the same hash can cause work, but never a false finding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
NONE: Final = np.empty(0, np.int64)
"""No identities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The live identities, sorted; those added while live; those deleted while not live."""

    live: Longs
    twice: Longs
    dangling: Longs


def replay(parts: Sequence[tuple[Longs, Signs]]) -> Replayed:
    """Replays entries in order. Each part has identities, and 1 for ADD or -1 for DELETE."""
    ids = np.concatenate([NONE, *(one for one, _ in parts)])
    if not len(ids):
        return Replayed(live=NONE, twice=NONE, dangling=NONE)
    signs = np.concatenate([one for _, one in parts])
    order = np.argsort(ids, kind="stable")
    ids, signs = ids[order], signs[order]
    first = np.concatenate([[True], ids[1:] != ids[:-1]])
    if first.all() and (signs > 0).all():
        return Replayed(live=ids, twice=NONE, dangling=NONE)
    running = np.cumsum(signs, dtype=np.int64)
    starts = np.flatnonzero(first)
    before = np.concatenate([[0], running[starts[1:] - 1]])
    running = running - np.repeat(before, np.diff(np.append(starts, len(ids))))
    ends = np.append(starts[1:], len(ids)) - 1
    return Replayed(
        live=ids[ends[running[ends] > 0]], twice=np.unique(ids[running > 1]), dangling=np.unique(ids[running < 0])
    )


def follow(live: Longs, delta: Sequence[tuple[Longs, Signs]]) -> Replayed:
    """Replays entries that come after a state whose live files are known and sorted. Apart from copying
    these, the cost grows only with the number of entries."""
    if not delta:
        return Replayed(live=live, twice=NONE, dangling=NONE)
    touched = np.unique(np.concatenate([ids for ids, _ in delta]))
    places = np.searchsorted(live, touched)
    found = places < len(live)
    found[found] = live[places[found]] == touched[found]
    present = touched[found]
    after = replay([(present, np.ones(len(present), np.int8)), *delta])
    kept = np.delete(live, places[found]) if len(present) else live
    joined = np.insert(kept, np.searchsorted(kept, after.live), after.live)
    return Replayed(live=joined, twice=after.twice, dangling=after.dangling)
