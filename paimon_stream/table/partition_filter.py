"""Chooses partitions: all of them, some by their rows, or all that match one of several specs.

Invariant: `holds` decides. `may_be_in` and `may_be_in_block` only rule out places where nothing can be found,
and are True in doubt.
"""

from collections.abc import Collection, Sequence

from paimon_stream.format.binary_row import deserialize, deserialize_partition
from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.stats import may_hold, partition_bounds
from paimon_stream.format.types import DataType
from paimon_stream.table.partition_spec import PartitionSpec


class PartitionFilter:
    """A choice of partitions, given as serialized rows. `types` are the types of the partition columns."""

    __slots__ = ("_known", "_rows", "_specs", "_types", "_values")

    def __init__(
        self,
        types: Sequence[DataType],
        *,
        rows: Collection[bytes] | None = None,
        specs: Sequence[PartitionSpec] | None = None,
    ) -> None:
        """All partitions, unless `rows` or `specs` choose some. A table without partition columns has one
        partition, which is always chosen."""
        self._types = tuple(types)
        whole = [None if spec.row is None else spec.row for spec in specs or ()]
        if rows is None and specs and None not in whole:
            rows, specs = [row for row in whole if row is not None], None
        chooses = bool(self._types)
        self._rows = None if rows is None or not chooses else frozenset(rows)
        self._specs = None if specs is None or not chooses else tuple(specs)
        self._values = [tuple(deserialize(self._types, row)) for row in self._rows or ()]
        self._known: dict[bytes, bool] = {}

    @property
    def is_everything(self) -> bool:
        """Whether all partitions are chosen, including future ones."""
        return self._rows is None and self._specs is None

    def holds(self, partition: bytes) -> bool:
        """Whether this partition is chosen."""
        if self._rows is not None:
            return partition in self._rows
        if self._specs is None:
            return True
        found = self._known.get(partition)
        if found is None:
            values = deserialize_partition(self._types, partition)
            found = self._known[partition] = any(spec.matches(values) for spec in self._specs)
        return found

    def may_be_in(self, stats: SimpleStats) -> bool:
        """Whether a manifest with these partition statistics can have entries of a chosen partition."""
        if self.is_everything:
            return True
        bounds = partition_bounds(self._types, stats)
        if bounds is None:
            return self._rows is None or bool(self._rows)
        if self._specs is not None:
            return any(spec.may_be_within(bounds) for spec in self._specs)
        return any(all(map(may_hold, self._types, bounds, row)) for row in self._values)

    def may_be_in_block(self, plain: bytes) -> bool:
        """Whether uncompressed records, which hold partitions as plain rows, can include a chosen one."""
        return self._rows is None or any(row in plain for row in self._rows)
