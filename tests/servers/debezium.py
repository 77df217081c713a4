"""Debezium, which sends the changes of a PostgreSQL to Kafka as JSON. It needs Java 17 and Maven, whose
local repository is used first.

    with Debezium(folder, postgres, kafka.address, ["public.orders"]) as debezium: ...

The topics are `shop.<schema>.<table>`. `kill` ends it as `kill -9` does; `start` starts it again where
it was, and it sends its last events again. The JVM dies with this process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.servers._process import die_with_parent, line_of
from tests.servers.maven import JarsUnavailable, with_dependencies
from tests.servers.postgres import DATABASE, PASSWORD, USER, Postgres

if TYPE_CHECKING:
    from typing_extensions import Self

DEBEZIUM: Final = "3.6.1.Final"
PREFIX: Final = "shop"
_JAVA: Final = Path(__file__).parent / "DebeziumEvents.java"
_ARTIFACTS: Final = ("debezium-embedded", "debezium-connector-postgres")


class DebeziumUnavailable(RuntimeError):
    """Java, Maven or a jar is missing here, or Debezium did not start. The message says which."""


def jars() -> list[str]:
    """The class path. Raises `DebeziumUnavailable`."""
    try:
        paths = [with_dependencies(f"io.debezium:{name}:{DEBEZIUM}") for name in _ARTIFACTS]
    except JarsUnavailable as why:
        raise DebeziumUnavailable(str(why)) from None
    return list(dict.fromkeys(jar for path in paths for jar in path))


class Debezium:
    """Debezium's engine for some tables, while its context is open. `settings` are those of the connector."""

    def __init__(
        self,
        folder: Path,
        postgres: Postgres,
        brokers: str,
        tables: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log: Final = folder / "debezium.log"
        self._properties: Final = folder / "debezium.properties"
        self._class_path: Final = ":".join(jars())
        self._child: subprocess.Popen[str] | None = None
        properties = {
            "name": "shop",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": DATABASE,
            "topic.prefix": PREFIX,
            "plugin.name": "pgoutput",
            "table.include.list": ",".join(tables),
            "poll.interval.ms": "100",
            "bootstrap.servers": brokers,
            **(settings or {}),
        }
        self._properties.write_text(
            "\n".join(f"{name}={value}" for name, value in properties.items())
        )
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it begins to read. The constructor calls this, too."""
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", self._class_path]
        with open(self.log, "ab") as log:
            self._child = subprocess.Popen(
                [*command, str(_JAVA), str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,
            )
        if line_of(self._child, self.log).strip() != "READY":
            raise DebeziumUnavailable(f"Debezium has ended: {self.said()}")

    def said(self) -> str:
        """The end of what it has logged."""
        return self.log.read_text(errors="replace")[-800:]

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
