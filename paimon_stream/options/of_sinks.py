"""The options of a sink, which begin with `paimon-stream.`."""

from collections.abc import Mapping
from typing import Final

from paimon_stream.options.option import Option, boolean, one_of, share, switch, text

_ROW_KINDS: Final = ("+I", "-U", "+U", "-D")


def _merge_mode(value: str) -> str:
    """`off`, `add` or `widen`. `true` and `false`, the values of Paimon's own option, mean `widen` and `off`."""
    word = value.strip().lower()
    return one_of("off", "add", "widen")({"true": "widen", "false": "off"}.get(word, word))


def _operation_mapping(value: str) -> Mapping[str, str]:
    """Row kinds by token: `c=+I,u=+U,d=-D`."""
    pairs = [one.split("=") for one in value.split(",") if one.strip()]
    if not pairs or not all(len(pair) == 2 and pair[1].strip() in _ROW_KINDS for pair in pairs):
        raise ValueError("not a list such as 'c=+I,u=+U,d=-D'; the kinds are +I, -U, +U and -D")
    return {token.strip(): kind.strip() for token, kind in pairs}


_DECIDE: Final = one_of("fail", "continue")

ON_CHECKPOINT_RESET = Option(
    "paimon-stream.on-checkpoint-reset", _DECIDE, "fail",
    "What to do when a new checkpoint continues a stream that another checkpoint wrote, or when a checkpoint was "
    "rewound.",
)  # fmt: skip
ON_UNKNOWN_HISTORY = Option(
    "paimon-stream.on-unknown-history", _DECIDE, "fail",
    "What to do when it is unknown whether a batch was committed, because the snapshots that would show it no longer "
    "exist.",
)  # fmt: skip
ON_TABLE_CHANGE = Option(
    "paimon-stream.on-table-change", _DECIDE, "fail",
    "What to do when the table was replaced or rolled back after the stream had written to it.",
)  # fmt: skip
JOURNAL = Option(
    "paimon-stream.journal", boolean, "true",
    "Record the prepared files before each commit, so that a restart can reuse or remove them.",
)  # fmt: skip
JOURNAL_REUSE = Option(
    "paimon-stream.journal.reuse", boolean, "true",
    "After a restart, commit the files that a killed run prepared instead of writing them again.",
)  # fmt: skip
SHUFFLE = Option(
    "paimon-stream.shuffle", one_of("auto", "bucket", "none"), "auto",
    "How rows reach the tasks that write them. bucket gathers each bucket in one task, which costs a shuffle and "
    "makes fewer, larger files. none leaves rows where they are; with a primary key that halves the CPU of large "
    "batches, but each task writes a file into each bucket, for compactions to merge. auto gathers the rows of "
    "tables with primary keys. It gathers the rows of other tables only if the previous batch left at least four "
    "small files per partition and bucket.",
)  # fmt: skip
SMALL_BATCH = Option(
    "paimon-stream.small-batch", one_of("auto", "off"), "auto",
    "auto: if the last batches were small, the driver writes the next one, which needs no Python worker. Small means "
    "at most 16 MB and 65,536 rows, or 262,144 rows for a table with partitions, buckets or a primary key, where "
    "tasks would write more files. If the next batch turns out to be larger, the tasks write it; at most 128 MB of "
    "rows reach the driver. The driver never writes for queries with state or on Spark Connect. off: the tasks write "
    "every batch.",
)  # fmt: skip
ON_SEQUENCE_CONFLICT = Option(
    "paimon-stream.on-sequence-conflict", one_of("rewrite", "fail", "ignore"), "rewrite",
    "What to do when another writer has added rows to a bucket of a table with a primary key, with the sequence "
    "numbers that this batch uses. rewrite: write the batch again with higher numbers. fail: stop the stream. ignore: "
    "commit anyway; it is then undefined which of two rows with the same key wins. Has no effect if sequence.field is "
    "set.",
)  # fmt: skip
STREAM_COMPACT = Option(
    "paimon-stream.compact", one_of("auto", "minor", "off"), "auto",
    "Whether a stream compacts the buckets that its batches touch, in a snapshot of its own after the batch's. auto: "
    "in tables with a primary key, as Paimon's writers do. minor: in append tables, too. off: never. Tables with "
    "write-only = true, and rows that wait in bucket -2, are left to other jobs in any case.",
)  # fmt: skip
STREAM_COMPACT_SHARE = Option(
    "paimon-stream.compact.max-share", share, "1",
    "After a batch, a stream waits for its compaction at most this share of the time since the batch before. What is "
    "not done by then goes on beside the next batches. The limit also holds if a bucket has more sorted runs than "
    "num-sorted-run.stop-trigger. With first-row and the changelog producers lookup and full-compaction, a batch waits "
    "until its compaction has ended.",
)  # fmt: skip
OPERATION_COLUMN = Option(
    "paimon-stream.operation-column", text, None,
    "A column of the incoming rows that says what each row does to its key. The table does not have this column. See "
    "paimon-stream.operation-mapping.",
)  # fmt: skip
OPERATION_MAPPING = Option(
    "paimon-stream.operation-mapping", _operation_mapping, None,
    "What the values of the operation column mean, for example c=+I,u=+U,d=-D. By default these values are known: +I, "
    "-U, +U, -D; I, U, D; Debezium's c, u, d, r; and insert, update, delete in lower or upper case.",
)  # fmt: skip
COMMIT_GUARD = Option(
    "paimon-stream.commit.guard", one_of("probe", "strict", "trust"), "probe",
    "probe: test at the start whether the storage creates files atomically, and warn if another engine that may "
    "replace our snapshots has written the table lately, in an object store. strict: refuse such a table. trust: "
    "assume that all is well.",
)  # fmt: skip
MERGE_SCHEMA = Option(
    "paimon-stream.merge-schema", _merge_mode, "off",
    "What to do with columns that the table does not have. off: raise an error. add: add them to the table as "
    "nullable columns. widen: like add, and also widen a column of the table if the rows have a wider type. "
    "`write.merge-schema` accepts true for widen and false for off.",
    aliases=("write.merge-schema",),
)  # fmt: skip
MISSING_COLUMNS = Option(
    "paimon-stream.missing-columns", one_of("error", "null"), "error",
    "What to do if the rows lack a nullable column of the table. error: refuse the rows. null: write NULL. A column "
    "with a default value gets its default in both cases.",
)  # fmt: skip
PROTECT_LAST_SNAPSHOT = Option(
    "paimon-stream.protect-last-snapshot", one_of("none", "consumer"), "none",
    "consumer: a consumer file keeps all engines from expiring the stream's last snapshot, and every later one, until "
    "the stream continues. none: no such file is written.",
)  # fmt: skip
UNSAFE_SINGLE_WRITER = switch(
    "paimon-stream.unsafe-single-writer",
    "Allow commits on a storage that cannot create files atomically. Safe only with a single writer.",
)
