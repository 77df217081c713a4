"""`catalog` gives access to databases and tables by their names. Its methods have PyPaimon's
names.
"""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.api.table import PaimonTable, described_columns
from paimon_stream.catalogs.filesystem import FilesystemCatalog, Named, catalog_arguments, names_of
from paimon_stream.catalogs.hive import HiveCatalog
from paimon_stream.catalogs.jdbc import JdbcCatalog
from paimon_stream.catalogs.metastore import metastore_of
from paimon_stream.catalogs.rest import RestCatalog
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.spark.active_session import open_beside_spark, options_of_catalog
from paimon_stream.table.creation import first_schema
from paimon_stream.table.schema_change import SchemaChange
from paimon_stream.table.table import alter_table, check_definition, table_of

_OPTIONS: Final = "{'bucket': '4'}"
_CHANGES: Final = "a list such as [SchemaChange.drop_column('name')]"
_SET_AT_CREATION: Final = (opt.PARTITIONED_IN_METASTORE.key, opt.TAG_TO_PARTITION.key)
"""Options that say which partition columns a Hive Metastore keeps."""


class PaimonCatalog(FilesystemCatalog):
    """The databases and tables of a warehouse. `catalog` makes this object. A table is named by
    `"db.t"`, `"db.t$branch_b"` or `("db", "t")`; backticks quote a name with dots
    (docs/catalogs.md).

    >>> shop = catalog({"warehouse": "memory://docs-catalog"})
    >>> shop.create_database("shop")
    >>> table = shop.create_table("shop.orders", [("id", "BIGINT NOT NULL"), ("amount", "INT")])
    >>> shop.alter_table("shop.orders", [SchemaChange.update_column_type("amount", "BIGINT")])
    >>> shop.list_tables("shop"), str(shop.get_table("shop.orders").schema.field("amount").type)
    (['orders'], 'BIGINT')
    """

    def get_table(self, identifier: Named) -> PaimonTable:
        """Loads a table or one of its branches. Raises the errors of `PaimonTable.load`."""
        location, options = self.found(identifier)
        return PaimonTable.load(location, storage_options=options)

    def create_table(
        self,
        identifier: Named,
        schema: Any,
        ignore_if_exists: bool = False,
        options: Any = None,
        **described: Any,
    ) -> PaimonTable:
        """Creates a table in a database. The catalog's `table-default.*` options set the options
        that `options` lacks.

        Args:
            identifier: the names of the database and the table.
            schema: the columns, in a form that `PaimonTable.create` takes.
            ignore_if_exists: return an existing table as it is, even with another schema.
            options: Paimon's options of the table, such as `{"bucket": "4"}`.
            **described: `partition_keys`, `primary_keys` and `comment`, as for
                `PaimonTable.create`.

        Raises:
            NotFound: if there is no such database.
            PaimonStreamError: the errors of `PaimonTable.create`.
        """
        self._table_folder(identifier)  # raises if there is no such database
        location = self.location(identifier)
        own_options = opt.Arguments(location).mapping("options", options, _OPTIONS)
        if "path" in own_options:
            raise errors.InvalidOption(
                f"{location}: the catalog itself chooses the folder of each table. Leave the option 'path' out.",
                option="path",
            )
        described |= {
            "if_not_exists": ignore_if_exists,
            "storage_options": self._options_of(identifier),
        }
        table = PaimonTable.create(
            location, schema, options={**self.table_defaults, **own_options}, **described
        )
        self._keep(identifier, table._table.schema, new=True)
        return table

    def alter_table(
        self,
        identifier: Named,
        changes: Iterable[SchemaChange],
    ) -> None:
        """Changes options, columns and comments of a table, by Java's rules. All of the changes
        become one new schema, or nothing changes. Streams follow with their next batch
        (docs/schema-changes.md).

        Args:
            identifier: the names of the database and the table.
            changes: the changes, which are applied in their order.

        Raises:
            NotFound: if there is no such table.
            IncompatibleSchema: for a change that the columns forbid.
            InvalidOption: for a change that an option forbids, and for an option with a wrong
                value.
            UnsupportedFeature: for a change after which this release could not write the table.
            CommitContended: if others keep changing the schema.
        """
        location, options = self.found(identifier)
        checked = opt.Arguments(location).items("changes", changes, SchemaChange, _CHANGES)
        altered = alter_table(self.opened(location, options), checked)
        self._keep(identifier, altered.schema, new=False)


class _JdbcCatalog(PaimonCatalog, JdbcCatalog):
    """A `PaimonCatalog` whose tables are also rows of a database."""


class _HiveCatalog(HiveCatalog, PaimonCatalog):
    """A `PaimonCatalog` whose tables a Hive Metastore knows."""

    def create_table(
        self,
        identifier: Named,
        schema: Any,
        ignore_if_exists: bool = False,
        options: Any = None,
        **described: Any,
    ) -> PaimonTable:
        """Creates a table, as `PaimonCatalog.create_table` does, and registers it."""
        name = ".".join(names_of(identifier, main=True))
        own_options = opt.Arguments(name).mapping("options", options, _OPTIONS)
        columns = [column.name for column in described_columns(schema)]
        tag_column = {**self.table_defaults, **own_options}.get(opt.TAG_TO_PARTITION.key)
        if tag_column:
            _check_tag_column(name, str(tag_column), columns, described.get("partition_keys"))
        _refuse_same_names(name, columns)
        ignored = opt.Arguments(name).flag("ignore_if_exists", ignore_if_exists)
        self.check_folder(identifier, ignore_if_exists=ignored)
        return super().create_table(identifier, schema, ignore_if_exists, options, **described)

    def alter_table(self, identifier: Named, changes: Iterable[SchemaChange]) -> None:
        """Changes a table, as `PaimonCatalog.alter_table` does. The metastore is told."""
        name = ".".join(names_of(identifier))
        checked = opt.Arguments(name).items("changes", changes, SchemaChange, _CHANGES)
        for change in checked:
            if change.action.endswith("Option") and change.target in _SET_AT_CREATION:
                raise errors.UnsupportedFeature(
                    f"{name}: the option {change.target!r} cannot be changed, because the Hive "
                    "Metastore does not change partition columns. Write the rows into a new table.",
                    option=change.target,
                )
        super().alter_table(identifier, checked)


def _refuse_same_names(name: str, columns: list[str]) -> None:
    """Raises `IncompatibleSchema` for names that a Hive Metastore takes for one."""
    lowered = [column.lower() for column in columns]
    same = [column for column in columns if lowered.count(column.lower()) > 1]
    if len(set(same)) > 1:
        raise errors.IncompatibleSchema(
            f"{name}: the columns {same[0]!r} and {same[1]!r} have one name in a Hive Metastore, which "
            "does not tell upper from lower case. Rename one.",
            column=same[0],
        )


def _check_tag_column(
    name: str, tag_column: str, columns: list[str], partition_keys: Iterable[str] | None
) -> None:
    """Raises `InvalidOption` if the metastore cannot keep tags as partitions of this column, because
    the table has partitions of its own, or a column with this name.
    """
    key = opt.TAG_TO_PARTITION.key
    if partition_keys:
        raise errors.InvalidOption(
            f"{name}: the option {key!r} is for tables without partitions. Leave it out, or create "
            "the table without partition keys.",
            option=key,
            value=tag_column,
        )
    if tag_column.lower() in (column.lower() for column in columns):
        raise errors.InvalidOption(
            f"{name}: the option {key!r} names the column {tag_column!r} of the table. Give a name "
            "that no column has.",
            option=key,
            value=tag_column,
        )


class _RestCatalog(RestCatalog, PaimonCatalog):
    """A `PaimonCatalog` in which a server creates and changes the tables."""

    def create_table(
        self,
        identifier: Named,
        schema: Any,
        ignore_if_exists: bool = False,
        options: Any = None,
        **described: Any,
    ) -> PaimonTable:
        """Creates a table, as `PaimonCatalog.create_table` does. The columns and options are
        checked before the server is asked.
        """
        name = ".".join(names_of(identifier, main=True))
        arguments = opt.Arguments(name)
        ignore_if_exists = arguments.flag("ignore_if_exists", ignore_if_exists)
        own_options = arguments.mapping("options", options, _OPTIONS)
        all_options = {**self.table_defaults, **own_options}
        if "path" in all_options:
            raise errors.InvalidOption(
                f"{name}: the server chooses where it is. Leave 'path' out.", option="path"
            )
        with errors.naming(name):
            columns = described_columns(schema)
            table_schema = first_schema(columns, options=all_options, **described)
            check_definition(table_of(open_beside_spark(f"memory://{quote(name)}"), table_schema))
        self.post_table(
            identifier, json.loads(encode_schema(table_schema)), ignored=ignore_if_exists
        )
        return self.get_table(identifier)

    def alter_table(self, identifier: Named, changes: Iterable[SchemaChange]) -> None:
        """Changes a table, as `PaimonCatalog.alter_table` does."""
        location, options = self.found(identifier)
        checked = opt.Arguments(location).items("changes", changes, SchemaChange, _CHANGES)
        alter_table(
            self.opened(location, options),
            checked,
            publish_schema=partial(self.post_changes, identifier, checked),
        )


def catalog(
    options: Any,
    name: str | None = None,
) -> PaimonCatalog:
    """The catalog with these options. No request is sent before the first method is called.

    Args:
        options: Paimon's options of the catalog: `warehouse`, the options of its store and,
            depending on `metastore`, the options of its database or server. If `name` is given, a
            Spark session.
        name: the name of a catalog in the Spark session, which has
            `spark.sql.catalog.<name>.warehouse`.

    Raises:
        InvalidOption: for an option with a wrong value, and if the session has no options for
            `name`.
        UnsupportedFeature: for a `metastore` that is not supported.
    """
    if name is None:
        catalog_options = options_of_catalog(options)
    else:
        catalog_options = options_of_catalog(name, options)
    arguments = catalog_arguments(catalog_options)
    kinds: dict[str, type[PaimonCatalog]] = {
        "hive": _HiveCatalog,
        "jdbc": _JdbcCatalog,
        "rest": _RestCatalog,
    }
    kind = kinds.get(metastore_of(arguments["storage_options"]), PaimonCatalog)
    return kind(**arguments, opened=open_beside_spark)
