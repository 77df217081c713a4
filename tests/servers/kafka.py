"""A real Kafka on loopback: broker and controller in one JVM, without ZooKeeper.

    with KafkaBroker() as kafka:
        kafka.create("events", partitions=3)
        kafka.send("events", [(b"key", b'{"id": 1}')])
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.address)

`KafkaBroker.java` lists the orders. The JVM dies with this process. It needs Java 17, Maven (its local
repository is used first) and pyspark, which has the logging jars. `connector` has the jars with which
Spark reads from Kafka; `spark.jars` takes them, joined by commas.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.servers._process import die_with_parent, free_port, line_of
from tests.servers.maven import JarsUnavailable, fetched, of_spark, with_dependencies

if TYPE_CHECKING:
    from typing_extensions import Self

KAFKA: Final = "4.1.1"
_JAVA: Final = Path(__file__).parent / "KafkaBroker.java"
_OF_SPARK: Final = ("slf4j-api-", "log4j-")
_CONNECTORS: Final = {"3.5": ("2.12", "3.5.7"), "4.0": ("2.13", "4.0.2"), "4.1": ("2.13", "4.1.1")}
"""The Scala and the release of Spark's own modules for each Spark."""
_NEWEST_CONNECTOR: Final = ("2.13", "4.2.0")
"""Spark 4.3 takes the modules of 4.2."""
_CLIENTS: Final = (
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""What the connector needs beside Spark's own jars."""


class KafkaUnavailable(RuntimeError):
    """Java, Maven or a jar is missing here, or the broker did not start or do what was asked. The
    message says which.
    """


def jars(kafka: str = KAFKA) -> list[str]:
    """The class path of a broker of this version. Raises `KafkaUnavailable`."""
    try:
        # First, because Kafka brings an older slf4j, which these do not log to.
        return [*of_spark(*_OF_SPARK), *with_dependencies(f"org.apache.kafka:kafka_2.13:{kafka}")]
    except JarsUnavailable as why:
        raise KafkaUnavailable(str(why)) from None


def connector_name() -> str:
    """Spark's connector for Kafka, as `--packages` takes it, for the pyspark that is here."""
    return _name_of("spark-sql-kafka-0-10")


def connector() -> list[str]:
    """The jars with which Spark reads from Kafka, and not those that Spark has itself. Raises
    `KafkaUnavailable`.
    """
    return _jars_of(connector_name(), _name_of("spark-token-provider-kafka-0-10"), *_CLIENTS)


def avro() -> list[str]:
    """The jar with which Spark reads Avro. Raises `KafkaUnavailable`."""
    return _jars_of(_name_of("spark-avro"))


def _name_of(module: str) -> str:
    try:
        minor = ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        raise KafkaUnavailable("pyspark is not installed") from None
    scala, release = _CONNECTORS.get(minor, _NEWEST_CONNECTOR)
    return f"org.apache.spark:{module}_{scala}:{release}"


def _jars_of(*artifacts: str) -> list[str]:
    try:
        return fetched(artifacts)
    except JarsUnavailable as why:
        raise KafkaUnavailable(str(why)) from None


class KafkaClient:
    """Creates topics of Kafka and sends records, while its context is open. `address` is that of a broker,
    or of several, with commas.
    """

    def __init__(self, address: str, *, kafka: str = KAFKA, heap: str = "256m") -> None:
        self.address: Final = address
        self.folder: Final = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._heap: Final = heap
        self._child: subprocess.Popen[str] | None = None
        try:
            self._class_path: Final = ":".join(jars(kafka))
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        """Starts it. The constructor calls this, too."""
        command = ["java", f"-Xmx{self._heap}", "-XX:TieredStopAtLevel=1", "-cp", self._class_path]
        with open(self._log, "ab") as log:
            self._child = subprocess.Popen(
                [*command, str(_JAVA), *self._arguments()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                text=True,
                bufsize=1,
                preexec_fn=die_with_parent,
            )
        self._answer("READY")

    def _arguments(self) -> list[str]:
        return [self.address]

    @property
    def _log(self) -> Path:
        return self.folder / "log.txt"

    def _answer(self, wanted: str) -> str:
        """What follows the word that an answer should begin with."""
        assert self._child is not None
        while line := line_of(self._child, self._log):
            if line.startswith((wanted, "FAILED")):
                break
        else:
            said = self._log.read_text(errors="replace")[-800:]
            raise KafkaUnavailable(f"Kafka has ended: {said}")
        if not line.startswith(wanted):
            raise KafkaUnavailable(f"Kafka refuses this: {line}")
        return line[len(wanted) :].strip()

    def tell(self, order: str) -> str:
        """Gives one of the orders of KafkaBroker.java. Returns what it answers."""
        assert self._child is not None and self._child.stdin is not None
        self._child.stdin.write(f"{order}\n")
        return self._answer("DONE")

    def create(self, topic: str, partitions: int = 1, *settings: str) -> None:
        """Creates a topic, with settings of its own, each as KEY=VALUE."""
        self.tell(" ".join(("create", topic, str(partitions), *settings)))

    def delete(self, topic: str) -> None:
        """Deletes a topic and its records."""
        self.tell(f"delete {topic}")

    def send(
        self,
        topic: str,
        records: Iterable[tuple[bytes | None, bytes | None]],
        partition: int | None = None,
    ) -> int:
        """Sends records, each a key and a value, and waits until all are stored. The key chooses the
        partition, unless one is named. Returns how many records there were.
        """
        end = "\n" if partition is None else f" {partition}\n"
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".records") as file:
            file.writelines(f"{_word(key)} {_word(value)}{end}" for key, value in records)
            file.flush()
            return int(self.tell(f"send {topic} {file.name}"))

    def drop(self, topic: str, partition: int, before: int) -> None:
        """Removes the records of a partition before this offset, as an expiry does."""
        self.tell(f"drop {topic} {partition} {before}")

    def ends(self, topic: str) -> dict[int, int]:
        """The next offset of each partition."""
        pairs = (word.split("=") for word in self.tell(f"ends {topic}").split())
        return {int(partition): int(offset) for partition, offset in pairs}

    def kill(self) -> None:
        """Ends it as `kill -9` does. `start` starts it again."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> None:
        """Ends it and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class KafkaBroker(KafkaClient):
    """A broker that runs while its context is open. `settings` are those of Kafka's server.properties.
    `kafka` is its version. `advertised`, HOST:PORT, is the address that it tells its clients; without it, that
    is the one at which it is. After `kill`, `start` starts it on the same port with the topics that are there.

    Attributes:
        address: what clients take as `bootstrap.servers`.
        folder: where its topics are. `stop` removes it.
    """

    def __init__(
        self,
        *settings: str,
        advertised: str | None = None,
        kafka: str = KAFKA,
        heap: str = "256m",
    ) -> None:
        self._settings: Final = settings
        self._port: Final = free_port()
        self._own_ports: Final = (str(free_port()), str(free_port()))
        address = f"127.0.0.1:{self._port}"
        self._advertised: Final = advertised or address
        super().__init__(address, kafka=kafka, heap=heap)

    def _arguments(self) -> list[str]:
        listener = (str(self._port), self._advertised)
        return [str(self.folder), *listener, *self._own_ports, *self._settings]


def _word(value: bytes | None) -> str:
    """A key or a value in an order. No bytes at all are a value, too, and no word."""
    return "-" if value is None else base64.b64encode(value).decode() or "="


if __name__ == "__main__":
    with KafkaBroker() as running:
        print(running.address, flush=True)
        for line in sys.stdin:
            print(running.tell(line.strip()), flush=True)
