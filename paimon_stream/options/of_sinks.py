"""The options of a sink, which begin with `paimon-stream.`; those for object stores may be storage
options, too.
"""

from collections.abc import Mapping
from typing import Final

from paimon_stream.options.option import (
    Option,
    between,
    boolean,
    duration,
    one_of,
    positive,
    share,
    switch,
    text,
)

_ROW_KINDS: Final = ("+I", "-U", "+U", "-D")


def _merge_mode(value: str) -> str:
    """`off`, `add` or `widen`. `true` and `false`, the values of Paimon's own option, mean `widen`
    and `off`.
    """
    word = value.strip().lower()
    return one_of("off", "add", "widen")({"true": "widen", "false": "off"}.get(word, word))


def _operation_mapping(value: str) -> Mapping[str, str]:
    """Row kinds by token: `c=+I,u=+U,d=-D`."""
    kinds: dict[str, str] = {}
    are_right = True
    for pair in value.split(","):
        if pair.strip():
            token, _, kind = pair.partition("=")
            kinds[token.strip()] = kind.strip()
            are_right = are_right and kind.strip() in _ROW_KINDS
    if not kinds or not are_right:
        raise ValueError("not a list such as 'c=+I,u=+U,d=-D'; the kinds are +I, -U, +U and -D")
    return kinds


def _millis(text: str) -> int:
    """Milliseconds of a duration, at least one."""
    return positive(str(duration(text)))


_DECIDE: Final = one_of("fail", "continue")

ON_CHECKPOINT_RESET = Option(
    "paimon-stream.on-checkpoint-reset",
    _DECIDE,
    "fail",
    "What to do when a new checkpoint continues a stream that another one wrote, or when a checkpoint was rewound.",
)
ON_UNKNOWN_HISTORY = Option(
    "paimon-stream.on-unknown-history",
    _DECIDE,
    "fail",
    "What to do when it is unknown whether a batch was committed: the snapshots that would show it no longer exist.",
)
ON_TABLE_CHANGE = Option(
    "paimon-stream.on-table-change",
    _DECIDE,
    "fail",
    "What to do when the table was replaced or rolled back after the stream had written to it.",
)
JOURNAL = Option(
    "paimon-stream.journal",
    boolean,
    "true",
    "Record the prepared files before each commit, so that a restart can reuse or remove them.",
)
JOURNAL_REUSE = Option(
    "paimon-stream.journal.reuse",
    boolean,
    "true",
    "After a restart, commit the files that a killed run prepared instead of writing them again.",
)
SHUFFLE = Option(
    "paimon-stream.shuffle",
    one_of("auto", "bucket", "none"),
    "auto",
    "How rows reach the tasks that write them. bucket gathers each bucket in one task; that costs a shuffle and makes "
    "fewer, larger files. none leaves rows where they are; with a primary key that saves a third of the CPU of large "
    "batches, but each task writes a file into each bucket, for compactions to merge. auto gathers the rows of tables "
    "with primary keys, unless the stream does not compact, at most four tasks have them, and by the batch before each "
    "would write a megabyte or more into each bucket; and of others only if that batch left at least four small files "
    "per partition and bucket.",
)
SMALL_BATCH = Option(
    "paimon-stream.small-batch",
    one_of("auto", "off"),
    "auto",
    "auto: if the last batches were small, the driver writes the next one, which needs no Python worker. Small means "
    "at most 16 MB and 65,536 rows, or 262,144 rows for a table with partitions, buckets or a primary key, where "
    "tasks would write more files. If the next batch is larger, the tasks write it; at most 128 MB of rows reach the "
    "driver. The driver never writes for queries with state or on Spark Connect. off: the tasks write every batch.",
)
ON_SEQUENCE_CONFLICT = Option(
    "paimon-stream.on-sequence-conflict",
    one_of("rewrite", "fail", "ignore"),
    "rewrite",
    "What to do when another writer has added rows to a bucket of a table with a primary key, with the sequence "
    "numbers that this batch uses. rewrite: write the batch again with higher numbers. fail: stop the stream. ignore: "
    "commit anyway; it is then undefined which of two rows of one key wins. Has no effect if sequence.field is set.",
)
STREAM_COMPACT = Option(
    "paimon-stream.compact",
    one_of("auto", "minor", "off"),
    "auto",
    "Whether a stream compacts the buckets that its batches touch, in a snapshot of its own after the batch's. auto: "
    "in tables with a primary key, as Paimon's writers do. minor: in append tables, too. off: never. Tables with "
    "write-only = true, and rows that wait in bucket -2, are left to other jobs in any case.",
)
STREAM_COMPACT_SHARE = Option(
    "paimon-stream.compact.max-share",
    share,
    "1",
    "After a batch, a stream waits for its compaction at most this share of the time since the batch before. What is "
    "not done by then goes on beside the next batches. The limit also holds if a bucket has more sorted runs than "
    "num-sorted-run.stop-trigger. With first-row and the changelog producers lookup and full-compaction, a batch waits "
    "until its compaction has ended.",
)
OPERATION_COLUMN = Option(
    "paimon-stream.operation-column",
    text,
    None,
    "A column of the rows, not of the table: what each row does to its key. See paimon-stream.operation-mapping.",
)
OPERATION_MAPPING = Option(
    "paimon-stream.operation-mapping",
    _operation_mapping,
    None,
    "What the values of the operation column mean, for example c=+I,u=+U,d=-D. By default these values are known: +I, "
    "-U, +U, -D; I, U, D; Debezium's c, u, d, r; and insert, update, delete in lower or upper case.",
)
COMMIT_GUARD = Option(
    "paimon-stream.commit.guard",
    one_of("probe", "strict", "trust"),
    "probe",
    "probe: test at the start whether the storage creates files atomically, and warn if another engine that may "
    "replace our snapshots has written the table lately, in an object store. strict: refuse such a table. trust: "
    "assume that all is well.",
)
MERGE_SCHEMA = Option(
    "paimon-stream.merge-schema",
    _merge_mode,
    "off",
    "What to do with columns that the table does not have. off: raise an error. add: add them to the table as "
    "nullable columns. widen: like add, and also widen a column of the table if the rows have a wider type. "
    "`write.merge-schema` accepts true for widen and false for off.",
    aliases=("write.merge-schema",),
)
MISSING_COLUMNS = Option(
    "paimon-stream.missing-columns",
    one_of("error", "null"),
    "error",
    "What to do if the rows lack a nullable column of the table. error: refuse the rows. null: write NULL. A column "
    "with a default value gets its default in both cases.",
)
PROTECT_LAST_SNAPSHOT = Option(
    "paimon-stream.protect-last-snapshot",
    one_of("none", "consumer"),
    "none",
    "consumer: a consumer file keeps all engines from expiring the stream's last snapshot, and every later one, until "
    "the stream continues. none: no such file is written.",
)
UNSAFE_SINGLE_WRITER = switch(
    "paimon-stream.unsafe-single-writer",
    "Allow commits on a storage that cannot create files atomically. Safe only with a single writer.",
)
STORE_TIMEOUT = Option(
    "paimon-stream.store.timeout",
    _millis,
    "10 s",
    "Object stores and HDFS: how long a request with less than 1 MiB may take. Others may take six times as long.",
)
STORE_CONNECT_TIMEOUT = Option(
    "paimon-stream.store.connect-timeout",
    _millis,
    "5 s",
    "Object stores: time to connect. HDFS: how long a request may take before anything has answered.",
)
STORE_MAX_RETRIES = Option(
    "paimon-stream.store.max-retries",
    between(0, 100, "must be from 0 to 100"),
    "8",
    "Object stores: how often a failed request that can be repeated is repeated. The put that publishes a "
    "snapshot is not among them; commit.max-retries applies to it.",
)
STORE_MAX_OUTAGE = Option(
    "paimon-stream.store.max-outage",
    duration,
    "10 min",
    "Object stores and HDFS: how long a job waits for a store that is down, if it has answered the job before.",
)
STORE_ALLOW_HTTP = switch(
    "paimon-stream.store.allow-http",
    "Object stores: allow an endpoint without TLS on another machine. Anybody on the way can then read the "
    "rows and the session token.",
)
STORE_FROM_SPARK = Option(
    "paimon-stream.store.from-spark",
    boolean,
    "true",
    "Object stores: if storage options do not say it, take endpoint and credentials from Spark's own "
    "configuration, fs.s3a.*, fs.azure.* and fs.gs.*. HDFS: take name services and mount tables from there.",
)
