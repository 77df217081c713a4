"""The options of a sink, which begin with `paimon-stream.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from paimon_stream.options.option import Option, Scope, boolean, one_of, text

__all__ = [
    "COMMIT_GUARD", "JOURNAL", "JOURNAL_REUSE", "MERGE_SCHEMA", "MISSING_COLUMNS", "ON_CHECKPOINT_RESET",
    "ON_SEQUENCE_CONFLICT", "ON_TABLE_CHANGE", "ON_UNKNOWN_HISTORY", "OPERATION_COLUMN",
    "OPERATION_MAPPING", "PROTECT_LAST_SNAPSHOT", "SHUFFLE", "SMALL_BATCH", "UNSAFE_SINGLE_WRITER",
]  # fmt: skip

_ROW_KINDS: Final = ("+I", "-U", "+U", "-D")


def _merge_mode(value: str) -> str:
    """`off`, `add` or `widen`, or `true` or `false` as Paimon's own option has it."""
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
    "paimon-stream.on-checkpoint-reset",
    _DECIDE,
    "fail",
    "What to do when a new checkpoint continues where another one wrote, or a checkpoint was rewound.",
    Scope.SINK,
)
ON_UNKNOWN_HISTORY = Option(
    "paimon-stream.on-unknown-history",
    _DECIDE,
    "fail",
    "What to do when the snapshots that would tell whether a batch was committed are gone.",
    Scope.SINK,
)
ON_TABLE_CHANGE = Option(
    "paimon-stream.on-table-change",
    _DECIDE,
    "fail",
    "What to do when the table was replaced or rolled back under the stream.",
    Scope.SINK,
)
JOURNAL = Option(
    "paimon-stream.journal",
    boolean,
    "true",
    "Note prepared files before each commit, so that a restart can reuse or remove them.",
    Scope.SINK,
)
JOURNAL_REUSE = Option(
    "paimon-stream.journal.reuse",
    boolean,
    "true",
    "Commit the files a killed run prepared, instead of writing them again.",
    Scope.SINK,
)
SHUFFLE = Option(
    "paimon-stream.shuffle",
    one_of("auto", "bucket", "none"),
    "auto",
    "How rows come to the tasks that write them: bucket gathers each bucket in one task (fewer, larger "
    "files, for the price of a shuffle), none leaves them where they are. auto gathers rows of tables with "
    "primary keys; of others only where the batch before left at least four files, and small ones, for each "
    "partition and bucket it had.",
    Scope.SINK,
)
SMALL_BATCH = Option(
    "paimon-stream.small-batch",
    one_of("auto", "off"),
    "auto",
    "Where the last batches were small (16 MB at most and 65,536 rows; 262,144 of a table with partitions, "
    "buckets or a primary key, where tasks would write more files), the driver writes the next one, which "
    "costs no Python worker; a larger one goes to the tasks as ever, and no more than 128 MB of rows come to "
    "the driver. Not for queries with state, nor on Spark Connect. off: tasks write all.",
    Scope.SINK,
)
ON_SEQUENCE_CONFLICT = Option(
    "paimon-stream.on-sequence-conflict",
    one_of("rewrite", "fail", "ignore"),
    "rewrite",
    "What to do when another writer has added rows to a bucket of a table with a primary key under the "
    "sequence numbers that this batch has used: rewrite (the batch is written again above them), fail, or "
    "ignore (which of two rows of a key stays is then left to chance). Not asked with sequence.field.",
    Scope.SINK,
)
OPERATION_COLUMN = Option(
    "paimon-stream.operation-column",
    text,
    None,
    "A column of the rows, not of the table, that says what each row does to its key; see "
    "paimon-stream.operation-mapping.",
    Scope.SINK,
)
OPERATION_MAPPING = Option(
    "paimon-stream.operation-mapping",
    _operation_mapping,
    None,
    "What the values of the operation column mean: c=+I,u=+U,d=-D. By default +I, -U, +U, -D; I, U, D; "
    "Debezium's c, u, d, r; insert, update, delete, also in capitals.",
    Scope.SINK,
)
COMMIT_GUARD = Option(
    "paimon-stream.commit.guard",
    one_of("probe", "trust"),
    "probe",
    "Prove at the start that the storage creates files atomically, or trust that it does.",
    Scope.SINK,
)
MERGE_SCHEMA = Option(
    "paimon-stream.merge-schema",
    _merge_mode,
    "off",
    "What becomes of columns that the table does not have: off (an error), add (they are added to the table, "
    "nullable), widen (and columns of a wider type widen the table's). `write.merge-schema` takes true for "
    "widen and false for off.",
    Scope.SINK,
    aliases=("write.merge-schema",),
)
MISSING_COLUMNS = Option(
    "paimon-stream.missing-columns",
    one_of("error", "null"),
    "error",
    "What becomes of nullable columns of the table that the rows do not have: error (the rows are refused), "
    "null (they are NULL). A column with a default value gets its default.",
    Scope.SINK,
)
PROTECT_LAST_SNAPSHOT = Option(
    "paimon-stream.protect-last-snapshot",
    one_of("none", "consumer"),
    "none",
    "With 'consumer', a consumer file keeps all engines from expiring the stream's last snapshot, and all "
    "after it, until the stream goes on.",
    Scope.SINK,
)
UNSAFE_SINGLE_WRITER = Option(
    "paimon-stream.unsafe-single-writer",
    boolean,
    "false",
    "Publish on a storage that cannot create files atomically; safe with one writer only.",
    Scope.SINK,
)
