"""The batch read of `format("paimon_stream")`: one snapshot, planned on the driver
(docs/reading.md, "In Spark").

Invariant: one action reads one snapshot. The reader plans the scan when Spark makes it, and tasks
plan nothing (splits.py). The scan travels with the reader, without its files, and each split brings
its own. A task reads data files, index files, and the schemas of files that were written under
another one. `schema_of` plans with a filter that nothing fulfils, so it opens no manifest.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import IncompatibleSchema, InvalidOption
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import moment_millis
from paimon_stream.options.option import size, switch
from paimon_stream.read.scan import Scan, plan_scan
from paimon_stream.runtime import system
from paimon_stream.spark.datasource_options import divided
from paimon_stream.spark.splits import (
    SPLIT_BYTES,
    arrow_of,
    rows_of_split,
    splits_of,
    without_files,
)
from paimon_stream.spark.types import same_but_nulls, spark_type
from paimon_stream.table.table import load_table

KEYS: Final = {  # the options of a read, each with the names that Paimon has for it
    "snapshot_id": ("snapshot-id", "scan.snapshot-id"),
    "tag": ("tag", "scan.tag-name"),
    "timestamp": ("timestamp", "scan.timestamp", "scan.timestamp-millis"),
    "columns": ("columns",),
    "partition": ("partition",),
    "split_size": ("split-size", "source.split.target-size"),
}
NOW: Final = {"snapshot_id": None, "tag": None, "timestamp": None}
READ_CHANGELOG: Final = switch(
    "read.changelog", "A stream gives all changes, and their kinds in a column."
)
ROW_KIND: Final = "rowkind"
"""The column of kinds, as Paimon's audit log calls it: +I, -U, +U, -D."""


def schema_of(options: dict[str, str]) -> StructType:
    """The columns of the table, or those that the option `columns` names. Raises as
    `PaimonTable.to_arrow`.
    """
    scan, *_ = _planned(options, filter=pc.scalar(False), **(NOW if "scan.mode" in options else {}))
    kinds = (
        [StructField(ROW_KIND, StringType(), False)]
        if scan.table.options.value(READ_CHANGELOG)
        else []
    )
    columns = [
        StructField(one.name, spark_type(one.type), one.type.nullable) for one in scan.columns
    ]
    return StructType([*kinds, *columns])


class _SnapshotReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: dict[str, str], schema: StructType, **more: Any) -> None:
        scan, self.split_bytes, self.asked = _planned(options, columns=schema.names, **more)
        for one, wanted in zip(scan.columns, schema.fields, strict=True):
            if not same_but_nulls(spark_type(one.type), wanted.dataType):
                text = f"column {one.name!r} is {one.type}, which is no {wanted.dataType.simpleString()} in Spark."
                raise IncompatibleSchema(text, column=one.name).of_table(scan.table.location)
        self._splits = splits_of(scan, self.split_bytes)
        self.scan, self.arrow = without_files(scan), arrow_of(schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_splits": []}  # Spark sends each task its own

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((CommitMessage.VERSION, one)) for one in self._splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            # Spark asks so if there are no splits: 4.0 in the first way, later ones in the second
            return
        version, data = partition.value
        yield from rows_of_split(self.scan, self.arrow, data, version)


reader_of: Final = _SnapshotReader
"""A reader of exactly the columns of a schema, of the snapshot that is chosen now. Raises as
`PaimonTable.to_arrow`.
"""


def _planned(options: dict[str, str], **more: Any) -> tuple[Scan, int, dict[str, Any]]:
    """The scan, the bytes of a split, and what the options choose. `more` is for `plan_scan`, and
    stronger.
    """
    given, asked = divided(options, chain.from_iterable(KEYS.values())), dict[str, Any]()
    where = given.location
    for name, keys in KEYS.items():
        found = [key for key in keys if key in given.own]
        if len(found) > 1:
            text = f"{' and '.join(found)} mean the same. Give one of them."
            raise InvalidOption(text, option=found[1]).of_table(where)
        for text in map(given.own.__getitem__, found):
            asked[name] = (
                int(text) if name in ("snapshot_id", "timestamp") and text.isdecimal() else text
            )
    if "timestamp" in asked:
        asked["timestamp"] = moment_millis(
            asked["timestamp"], "timestamp", where, system().clock.now_millis()
        )
    if "columns" in asked:
        asked["columns"] = [one.strip() for one in asked["columns"].split(",")]
    try:
        split_bytes = size(asked.pop("split_size", SPLIT_BYTES))
    except ValueError as why:
        raise InvalidOption(f"split-size is {why}.", option="split-size").of_table(where) from None
    table = load_table(open_storage(where, given.storage), given.table)
    return plan_scan(table, **{**asked, **more}), split_bytes, asked
