"""The orders of a shop, which change in PostgreSQL, and the table that follows them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv

SOURCE = "public.orders"
TOPIC = f"shop.{SOURCE}"
END = "public.the_end"
FIRST_ROWS = 1_000
ROUNDS = 6
PER_BATCH = 1_000
SUMMED = ("id", "version")

ARROW_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "customer": pa.string(),
        "amount": pa.decimal128(12, 2),
        "note": pa.string(),
        "placed": pa.date32(),
        "version": pa.int32(),
        "changed": pa.timestamp("us"),
    }
)
TABLE = [
    ("id", "BIGINT NOT NULL"),
    ("customer", "STRING NOT NULL"),
    ("amount", "DECIMAL(12, 2) NOT NULL"),
    ("note", "STRING"),
    ("placed", "DATE NOT NULL"),
    ("version", "INT NOT NULL"),
    ("changed", "TIMESTAMP(6) NOT NULL"),
]

CREATE = f"""
CREATE TABLE {SOURCE} (
    id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(12, 2) NOT NULL, note text,
    placed date NOT NULL, version integer NOT NULL, changed timestamp NOT NULL
);
ALTER TABLE {SOURCE} REPLICA IDENTITY FULL;  -- else unchanged large values are not sent
CREATE TABLE {END} (id bigint PRIMARY KEY);
"""
FINISH = f"INSERT INTO {END} VALUES (1)"


def insert(first: int, count: int) -> str:
    """New orders. One of twenty has a note of 6,400 characters, which PostgreSQL keeps apart."""
    return f"""
    INSERT INTO {SOURCE} SELECT i, 'Customer ' || i % 97, (i * 7919 % 100000) / 100.0 - 200,
        CASE WHEN i % 20 = 0 THEN (SELECT string_agg(md5((i + n)::text), '') FROM generate_series(1, 200) n)
             WHEN i % 3 = 0 THEN 'note, "' || i || '"' END,
        date '2026-11-01' + (i % 30)::int, 1, timestamp '2026-11-01' + i * interval '1.000001 second'
    FROM generate_series({first}, {first + count - 1}) i;
    """


def rounds() -> Iterator[str]:
    """What happens to the orders, a transaction for each item."""
    for number in range(ROUNDS):
        yield (
            insert(FIRST_ROWS + 1 + number * 300, 300)
            + f"""
        UPDATE {SOURCE} SET amount = amount * 1.1, version = version + 1,
            changed = changed + interval '1 hour' WHERE id % 7 = {number % 7};
        DELETE FROM {SOURCE} WHERE id % 23 = {number};
        UPDATE {SOURCE} SET id = id + 1000000 WHERE id % 29 = {number} AND id < 1000000;
        """
        )


class Database:
    """Runs statements by PostgreSQL's own psql."""

    def __init__(self, psql: str, conninfo: str) -> None:
        self._command = [psql, conninfo, "-v", "ON_ERROR_STOP=1", "-qXAt", "-c"]

    def run(self, statements: str) -> str:
        """Runs statements in one transaction. Returns what they print."""
        done = subprocess.run([*self._command, statements], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"PostgreSQL refuses a statement: {done.stderr.strip()}")
        return done.stdout

    def wait(self, seconds: float = 60) -> None:
        """Waits until the server takes connections."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.run("SELECT 1")
                return
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def orders(self) -> pa.Table:
        """All rows of the source."""
        text = self.run(f"COPY {SOURCE} TO STDOUT (FORMAT csv, FORCE_QUOTE (customer, note))")
        options = pa.csv.ConvertOptions(
            column_types=ARROW_SCHEMA, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        return pa.csv.read_csv(
            pa.BufferReader(text.encode()),
            pa.csv.ReadOptions(column_names=ARROW_SCHEMA.names),
            pa.csv.ParseOptions(newlines_in_values=True),
            options,
        )
