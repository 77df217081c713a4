"""Java Paimon on S3, and its JDBC catalog, called from Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

WAIT: Final = 60
"""What has not come after this number of seconds does not come."""


def java_with_s3(java: Any, options: Mapping[str, str], *, databases: bool = False) -> Any:
    """Java Paimon in the JVM of `java`, with S3 under these options. Without the jar of S3, or of the
    drivers of databases where they are asked for, the test is skipped, or fails if
    `PAIMON_REQUIRE_ORACLE=1`.
    """
    import java_paimon

    try:
        jars = java_paimon.database_jars() if databases else []
        return java_paimon.JavaPaimonOnS3.beside(java, options, jars)
    except java_paimon.OracleUnavailable as why:
        if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
            pytest.fail(f"The Java oracle is required and not there: {why}")
        pytest.skip(f"Java Paimon with S3 or databases is not there: {why}")


class JavaJdbcCatalog:
    """Java's `JdbcCatalog` with these options. Its methods have Java's names."""

    def __init__(self, java: Any, options: Mapping[str, str]) -> None:
        self.java, given = java, java._paimon.options.Options()
        for key, value in {**options, "cache-enabled": "false"}.items():
            given.set(key, value)
        self.catalog = java._paimon.catalog.CatalogFactory.createCatalog(
            java._paimon.catalog.CatalogContext.create(given)
        )
        self.change = java._paimon.schema.SchemaChange

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)

    def named(self, identifier: str) -> Any:
        return self.java._paimon.catalog.Identifier.fromString(identifier)

    def create_table(self, identifier: str, columns: Sequence[tuple[str, str]], **how: Any) -> None:
        schema = self.java._java_schema(
            columns,
            how.get("partition_keys", []),
            how.get("primary_keys", []),
            how.get("options", {"bucket": "-1"}),
        )
        self.catalog.createTable(self.named(identifier), schema, False)

    def table(self, identifier: str) -> Any:
        return self.catalog.getTable(self.named(identifier))

    def write(self, identifier: str, rows: Sequence[Mapping[str, Any]], number: int) -> None:
        """Commits the rows by the catalog, so with its lock."""
        table, java = self.table(identifier), self.java
        messages = java._prepare(table, rows, "java", number, None, False)
        java._commit(table, "java", number, messages, None, True, None)

    def read(self, identifier: str) -> list[dict[str, Any]]:
        """The rows, by id."""
        found = self.java.read(self.table(identifier).location().toString())
        return sorted(found, key=lambda one: one["id"])


class Beside(threading.Thread):
    """Does something in a thread, and raises here what was raised there."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work, self.failed = work, list[BaseException]()
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except BaseException as failed:  # noqa: BLE001 - the test reports it
            self.failed.append(failed)

    def end(self) -> None:
        self.join(WAIT)
        assert not self.failed, str(getattr(self.failed[0], "java_exception", self.failed[0]))
        assert not self.is_alive()
