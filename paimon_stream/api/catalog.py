"""`catalog`: databases and tables by their names, with PyPaimon's names of methods."""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.api.table import PaimonTable, described_columns
from paimon_stream.catalogs.filesystem import FilesystemCatalog, Named, catalog_arguments, names_of
from paimon_stream.catalogs.jdbc import JdbcCatalog
from paimon_stream.catalogs.rest import RestCatalog
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.spark.active_session import open_beside_spark, options_of_catalog
from paimon_stream.table.creation import first_schema
from paimon_stream.table.schema_change import SchemaChange
from paimon_stream.table.table import alter_table, check_definition, table_of

_CHANGES: Final = "a list such as [SchemaChange.drop_column('name')]"


class PaimonCatalog(FilesystemCatalog):
    """The databases and tables of a warehouse, made by `catalog`. A table is named by `"db.t"`,
    `"db.t$branch_b"` or `("db", "t")`; backticks quote a name with dots (docs/catalogs.md).

    >>> shop = catalog({"warehouse": "memory://docs-catalog"})
    >>> shop.create_database("shop")
    >>> table = shop.create_table("shop.orders", [("id", "BIGINT NOT NULL"), ("amount", "INT")])
    >>> shop.alter_table("shop.orders", [SchemaChange.update_column_type("amount", "BIGINT")])
    >>> shop.list_tables("shop"), str(shop.get_table("shop.orders").schema.field("amount").type)
    (['orders'], 'BIGINT')
    """

    def get_table(self, identifier: Named) -> PaimonTable:
        """Loads a table, or a branch of it. Raises the errors of `PaimonTable.load`."""
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
        """Creates a table in a database. The keywords and the errors are those of
        `PaimonTable.create`, and `NotFound` if there is no such database. The catalog's
        `table-default.*` options count where `options` lack them.
        """
        self._table_folder(identifier)
        location = self.location(identifier)
        given = opt.Arguments(location).mapping("options", options, "{'bucket': '4'}")
        if "path" in given:
            text = f"{location}: tables of a catalog lie in its warehouse. Leave the option 'path' out."
            raise errors.InvalidOption(text, option="path")
        described |= {"if_not_exists": ignore_if_exists, "storage_options": self.storage_options}
        table = PaimonTable.create(
            location, schema, options={**self.table_defaults, **given}, **described
        )
        self._keep(identifier, table._table.schema, new=True)
        return table

    def alter_table(
        self,
        identifier: Named,
        changes: Iterable[SchemaChange],
    ) -> None:
        """Changes options, columns and comments of a table, by Java's rules: all of the changes, in
        one new schema, or none. Streams follow with their next batch (docs/schema-changes.md).
        Raises `NotFound`, `IncompatibleSchema`, `InvalidOption`, and `CommitContended` if others
        keep changing the schema.
        """
        location, options = self.found(identifier)
        wanted = opt.Arguments(location).items("changes", changes, SchemaChange, _CHANGES)
        self._keep(
            identifier, alter_table(self.opened(location, options), wanted).schema, new=False
        )


class _JdbcCatalog(PaimonCatalog, JdbcCatalog):
    """`PaimonCatalog` where a database has the tables, too."""


class _RestCatalog(RestCatalog, PaimonCatalog):
    """`PaimonCatalog` where a server creates and changes the tables."""

    def create_table(
        self,
        identifier: Named,
        schema: Any,
        ignore_if_exists: bool = False,
        options: Any = None,
        **described: Any,
    ) -> PaimonTable:
        """As in `PaimonCatalog`. The columns and options are checked here, too, before the server
        is asked.
        """
        name = ".".join(names_of(identifier, main=True))
        given = opt.Arguments(name)
        ignored = given.flag("ignore_if_exists", ignore_if_exists)
        wanted = {**self.table_defaults, **given.mapping("options", options, "{'bucket': '4'}")}
        if "path" in wanted:
            raise errors.InvalidOption(
                f"{name}: the server chooses where it is. Leave 'path' out.", option="path"
            )
        with errors.naming(name):
            made = first_schema(described_columns(schema), options=wanted, **described)
            check_definition(table_of(open_beside_spark(f"memory://{quote(name)}"), made))
        self.post_table(identifier, json.loads(encode_schema(made)), ignored=ignored)
        return self.get_table(identifier)

    def alter_table(self, identifier: Named, changes: Iterable[SchemaChange]) -> None:
        """As in `PaimonCatalog`."""
        location, options = self.found(identifier)
        wanted = opt.Arguments(location).items("changes", changes, SchemaChange, _CHANGES)
        alter_table(
            self.opened(location, options),
            wanted,
            publish=partial(self.post_changes, identifier, wanted),
        )


def catalog(
    options: Any,
    name: str | None = None,
) -> PaimonCatalog:
    """The catalog with these options, which are Paimon's: `warehouse`, those of its store, and, by
    its `metastore`, those of its database or server. Or the catalog of that `name` in a Spark
    session, given as `options`, which has `spark.sql.catalog.<name>.warehouse`. Asks nobody. Raises
    `InvalidOption`, `UnsupportedFeature` for a `metastore` that is not supported.
    """
    given = options_of_catalog(options) if name is None else options_of_catalog(name, options)
    arguments = catalog_arguments(given)
    kinds = {"jdbc": _JdbcCatalog, "rest": _RestCatalog}
    kind: type[PaimonCatalog] = kinds.get(
        arguments["storage_options"].get("metastore", ""), PaimonCatalog
    )
    return kind(**arguments, opened=open_beside_spark)
