"""What all parts of `PaimonTable` share: the table as it was loaded, and loading it again."""

from collections.abc import Mapping

from paimon_stream.errors import naming
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options import SINK_PREFIX, Arguments, check_sink_options
from paimon_stream.storage.base import Storage
from paimon_stream.table.table import Table, load_table


class LoadedTable:
    """The table as it was when it was loaded: its location, schema, keys and options."""

    __slots__ = ()

    _table: Table

    @property
    def location(self) -> str:
        """The table's folder, without credentials."""
        return self._table.location

    @property
    def schema(self) -> TableSchema:
        """The schema: `fields` (each with `name`, `type`, `description`), keys, options, `id`."""
        return self._table.schema

    @property
    def options(self) -> Mapping[str, str]:
        """The table's own options, as stored. Options that are not set have Paimon's defaults."""
        return self._table.schema.options

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The partition columns, in order; empty for a table without partitions."""
        return self._table.schema.partition_keys

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """The primary key columns, in order; empty for an append table."""
        return self._table.schema.primary_keys

    def _newest(self, **arguments: str | None) -> Table:
        """The table as it is now, with these options of a sink, under their names in Python; None is not given."""
        asked = {}
        for name, value in arguments.items():
            self._given.text(name, value, optional=True)
            if value is not None:
                asked[SINK_PREFIX + name.replace("_", "-")] = value
        with naming(self.location):
            check_sink_options(asked)
        return load_table(self._storage, asked)

    @property
    def _given(self) -> Arguments:
        return Arguments(self.location)

    @property
    def _storage(self) -> Storage:
        return self._table.storage
