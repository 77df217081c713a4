"""An engine that shares no code with us, asked by `tests/kits/other_engines.py`. It runs in the
environment of the readers, as a process that answers line by line.

.venv-readers/bin/python tests/oracle/other_engine.py pypaimon

A line is a JSON list: the action, the path of a table, the path of a file with Arrow rows, which is
read or written, and further arguments. The answer is null, or the text of an error.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import pyarrow as pa


class PyPaimon:
    """Paimon's official library for Python."""

    def read(self, path: str, rows: str) -> None:
        write_rows(rows, self._found(path))

    def append(self, path: str, rows: str) -> None:
        self._write(path, rows, lambda builder: builder)

    def overwrite(self, path: str, rows: str, partition: dict[str, str]) -> None:
        self._write(path, rows, lambda builder: builder.overwrite(partition))

    def delete(self, path: str, rows: str, column: str, values: list[Any]) -> None:
        """Deletes rows of a table with data evolution, by deletion vectors."""
        builder = self._table(path).new_batch_write_builder()
        update = builder.new_update()
        chosen = update.new_predicate_builder().is_in(column, values)
        self._commit(builder, update.delete_by_predicate(chosen))

    def update(
        self, path: str, rows: str, column: str, values: list[Any], new: dict[str, Any]
    ) -> None:
        """Sets the columns of `new` in the rows that have one of these values, in a table with data
        evolution.
        """
        builder = self._table(path).new_batch_write_builder()
        update = builder.new_update()
        chosen = update.new_predicate_builder().is_in(column, values)
        self._commit(builder, update.update_by_predicate(chosen, new))

    def vectors(self, path: str, rows: str) -> None:
        """Writes what is in `tests/vectors/commit_message_v14.json`."""
        import pypaimon_messages

        with open(rows, "w") as file:
            file.write(pypaimon_messages.text())

    def options(self, path: str, rows: str) -> None:
        """Writes the keys of the options of tables that it knows, one in a row."""
        from pypaimon.common.options.core_options import CoreOptions

        known = [getattr(value, "key", None) for value in vars(CoreOptions).values()]
        keys = sorted({key() for key in known if callable(key)})
        write_rows(rows, pa.table({"key": keys}))

    def _write(self, path: str, rows: str, chosen: Any) -> None:
        builder = chosen(self._table(path).new_batch_write_builder())
        write = builder.new_write()
        write.write_arrow(read_rows(rows))
        self._commit(builder, write.prepare_commit())
        write.close()

    def _commit(self, builder: Any, messages: Any) -> None:
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()

    def _found(self, path: str) -> pa.Table:
        builder = self._table(path).new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def _table(self, path: str) -> Any:
        from pypaimon.table.file_store_table import FileStoreTable

        return FileStoreTable.from_path(path)


class PyPaimonRust:
    """The library in Rust."""

    def read(self, path: str, rows: str) -> None:
        from pypaimon_rust.datafusion import PaimonCatalog

        warehouse, database, name = path.rsplit("/", 2)
        catalog = PaimonCatalog({"warehouse": warehouse})
        table = catalog.get_table(database.removesuffix(".db") + "." + name)
        builder = table.new_read_builder()
        batches = list(builder.new_read().read_arrow(builder.new_scan().plan().splits()))
        write_rows(rows, pa.Table.from_batches(batches))


ENGINES = {"pypaimon": PyPaimon, "pypaimon_rust": PyPaimonRust}


def read_rows(path: str) -> pa.Table:
    with pa.OSFile(path) as source:
        return pa.ipc.open_file(source).read_all()


def write_rows(path: str, rows: pa.Table) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


def answer(engine: Any, line: str) -> str | None:
    action, path, rows, *arguments = json.loads(line)
    try:
        getattr(engine, action)(path, rows, *arguments)
    except BaseException:  # noqa: BLE001 - whatever a library raises, the test is told
        return traceback.format_exc()
    return None


def main() -> None:
    engine = ENGINES[sys.argv[1]]()
    # What a library prints must not get between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(engine, line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
