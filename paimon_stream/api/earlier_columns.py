"""Checks with the sink's own code whether the columns of a stream's last batch still fit the table.

Only a restart shows which columns the query has now. But the schema under which the stream's last batch was
committed is known, and rows with exactly its columns fitted then.
"""

from paimon_stream.errors import IncompatibleSchema, MissingExtra
from paimon_stream.extras import require
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.options import BUCKET, MERGE_SCHEMA, Options
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table


def judge_columns(table: Table, last: Snapshot | None, done_millis: int | None) -> list[str]:
    """The changes to the schema since the stream's `last` snapshot that need a look before a restart. `done_millis` is
    the time at which Spark recorded the stream's last batch as done. Raises what the sink would raise for the columns
    of that snapshot, mostly `IncompatibleSchema`."""
    now = table.schema
    if last is None:
        if now.id == 0 or done_millis is None or now.time_millis <= done_millis:
            return []
        return [
            f"The table's schema {now.id} is younger than the stream's last batch, and no snapshot of that "
            "batch is left. Whether the columns of the query still fit is not known."
        ]
    if last.schema_id == now.id:
        return []
    then = SchemaStore(table.storage).get(last.schema_id)
    since = f"The table's schema has changed since batch {last.commit_identifier}, from {then.id} to {now.id}"
    return [f"{since}: {one}" for one in (*_buckets(then, table), *_columns(then, table, since))]


def _buckets(then: TableSchema, table: Table) -> list[str]:
    was, is_now = Options(then.options).value(BUCKET), table.options.value(BUCKET)
    if was == is_now:
        return []
    return [
        f"bucket was {was} and is now {is_now}. A batch with rows for a partition of {was} buckets raises "
        "BucketCountChanged."
    ]


def _columns(then: TableSchema, table: Table, since: str) -> list[str]:
    try:
        fit = require("paimon_stream.spark.schema_fit", "spark", "The check of a changed schema")
    except MissingExtra:
        return ["PySpark is not installed, so whether the columns of the query still fit is not known here."]
    try:
        grown: TableSchema = fit.check_earlier_columns(then, table)
    except IncompatibleSchema as error:
        raise type(error)(
            f"{since}. If the query still has the columns of that batch, the sink raises: {error.message}",
            **error.context,
        ) from None
    added = sorted(set(grown.field_names) - set(table.schema.field_names))
    if not added:
        return []
    return [
        f"with {MERGE_SCHEMA.key} = {table.options.value(MERGE_SCHEMA)} the sink adds these columns again if "
        f"the query still has them: {', '.join(added)}."
    ]
