"""Which tables our writers can write and merge, and what users must know about these tables. The
table's definition decides, before any row is written.

Some tables with a primary key need a compaction to make their rows visible or to write their
changelog. A stream writes such a table only if it compacts the table itself, or if the table's
`write-only` option says that another job does so (semantics.md R6.6).
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from paimon_stream import options as opt
from paimon_stream.change.append_tables import check_append_table
from paimon_stream.change.merge_clauses import MergeWords, check_partitions_are_named
from paimon_stream.compact.planning import refusal
from paimon_stream.errors import UnsupportedFeature, naming
from paimon_stream.merge.spec import FIRST_ROW, MergeSpec
from paimon_stream.reports import is_news
from paimon_stream.stream.compacting import compacts
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.verdicts import Fresh, Verdict
from paimon_stream.table.table import Table, check_table_kind
from paimon_stream.write.row_kinds import KindRules

_LOG = logging.getLogger(__name__)

_INVISIBLE: Final = "rows are invisible to readers until a compaction has rewritten them"
_LEFT_TO_OTHERS: Final[Mapping[opt.Option[Any], str]] = {
    opt.COMMIT_CALLBACKS: "they are Java classes, and are not called",
    opt.ICEBERG_STORAGE: "no Iceberg metadata is written",
    opt.MANIFEST_SORT: "manifests are merged in the order of commits",
    opt.POSTPONE_MERGE_ON_READ: "rows that wait in bucket -2 are not shown",
    opt.TARGET_FILE_ROWS: "files are closed by their size alone",
    opt.VISIBILITY_CALLBACK: "commits wait for nobody",
    opt.EXPLICIT_CAST: "columns are only widened, never cast to a narrower type",
    opt.PARTITION_STRICT: "partition values that name no time are written",
    opt.TAG_CALLBACKS: "they are Java classes, and are not called",
    opt.TAG_SUCCESS_FILE: "no file is written beside a tag",
}


class _LeftToCompaction(NamedTuple):
    """An option of a table that takes effect only when another job compacts the table.

    Attributes:
        option: its key.
        value: its value, as a message shows it.
        missing: what is missing before that compaction, as half a sentence.
    """

    option: str
    value: str
    missing: str


def check_writable(table: Table, *, in_stream: bool = False) -> None:
    """Raises an error, before anything is written, if this release cannot write the table as its
    definition demands.

    Args:
        table: the table.
        in_stream: whether a stream writes the table, in append or update mode.

    Raises:
        UnsupportedFeature: the table's kind, a column, an option or an aggregate function is not
            supported.
        InvalidOption: options contradict the schema or each other.
    """
    check_table_kind(table)
    if not table.schema.primary_keys:
        return
    spec = MergeSpec.of(table.schema, table.options, table=table.location)
    if table.options.value(opt.WRITE_ONLY) or table.is_postponed:
        return
    if in_stream and compacts(table):
        return
    for left in _left_to_compaction(table, spec):
        if in_stream and refusal(table) is None:
            message = (
                f"has {left.option} = {left.value!r}: {left.missing}, and nothing compacts it here. "
                f"Set {opt.STREAM_COMPACT.key} to auto, or set 'write-only' to 'true' on the table "
                f"and let a job compact it, or remove {left.option!r}."
            )
        else:
            message = (
                f"has {left.option} = {left.value!r}: {left.missing}, and nothing compacts it here. "
                "Set 'write-only' to 'true' on the table and let a job compact it, or remove "
                f"{left.option!r}."
            )
        raise UnsupportedFeature(message, option=left.option, value=left.value).of_table(
            table.location, subject=True
        )


def check_mergeable(table: Table, merge: MergeWords) -> None:
    """Raises an error, before anything is written, if a stream cannot merge its batches into the
    table in this way. Whether the clauses fit the columns is known when a batch comes.

    Raises:
        UnsupportedFeature: the rows of such a table are not changed here, or a clause about rows
            without a match is not limited to partitions.
        InvalidOption: a predicate does not fit the columns of the table.
    """
    with naming(table.location):
        check_partitions_are_named(merge, table.schema)
    if not table.schema.primary_keys:
        check_append_table(table)


def tell_of_followers(table: Table) -> None:
    """Logs what streams that read an append table see of merges. It is called at the start of a run
    that merges. A process logs it once for each table.
    """
    if table.schema.primary_keys or not is_news(table.location, "followers of merges"):
        return
    repeated = "the new values of updated rows"
    if not table.options.value(opt.DELETION_VECTORS):
        repeated += ", and again the rows that stay in the files that were rewritten"
    _LOG.warning(
        "%s: streams that read this table, those of Java, too, pass over batches that update or delete rows. With "
        "streaming-read-append-overwrite = true they get %s, and no deletions. If a reader needs each change, give the table "
        "a primary key and a changelog-producer.",
        table.location,
        repeated,
    )


def warn_of_merging(table: Table, *, in_stream: bool = False) -> None:
    """Logs what readers of a table do not see before another job has compacted it, and the columns
    because of which no reader could merge a -D that comes late. It is called at the start of a run.
    A process logs each warning of a table once. `in_stream` says whether a stream writes the table,
    in append or update mode.
    """
    if not table.schema.primary_keys:
        return
    spec = MergeSpec.of(table.schema, table.options, table=table.location)
    left_options = []
    if table.is_postponed:
        left_options.append(
            _LeftToCompaction(opt.BUCKET.key, "-2", f"{_INVISIBLE}, which no stream does")
        )
    if not (in_stream and compacts(table)):
        left_options += _left_to_compaction(table, spec)
    for left in left_options:
        if is_news(table.location, f"{left.option} = {left.value}: {left.missing}"):
            _LOG.warning(
                "%s: %s = %s: %s. Run a job that compacts this table; write-only = true says that there is one.",
                table.location,
                left.option,
                left.value,
                left.missing,
            )
    columns = KindRules.of(table.schema, table.options, spec).late_deletes
    if columns and is_news(table.location, f"late -D of {columns}"):
        _LOG.warning(
            "%s: a -D removes a row. But no reader could merge a -D that comes late, with a lower sequence "
            "than its row, because the functions of %s take no value back. Set "
            "fields.<column>.ignore-retract to true for them, unless deletes always come in order.",
            table.location,
            ", ".join(columns),
        )


def _left_to_compaction(table: Table, spec: MergeSpec) -> Iterator[_LeftToCompaction]:
    """The table's options that take effect only when another job compacts the table. Called only if
    no stream compacts the table.
    """
    if table.options.value(opt.DELETION_VECTORS):
        yield _LeftToCompaction(opt.DELETION_VECTORS.key, "true", _INVISIBLE)
    if spec.engine == FIRST_ROW:
        yield _LeftToCompaction(opt.MERGE_ENGINE.key, FIRST_ROW, _INVISIBLE)
    producer = table.options.value(opt.CHANGELOG_PRODUCER)
    if producer in ("lookup", "full-compaction"):
        yield _LeftToCompaction(
            opt.CHANGELOG_PRODUCER.key, producer, "only a compaction writes its changelog"
        )


def warn_of_earlier_batches(table: Table, evidence: Evidence, verdict: Verdict) -> None:
    """Warns if a query without history in the table begins above batch 0. Its checkpoint was moved
    from another table, which has the earlier batches. There is no warning for a sink that got
    another name, or was added to a query: the table has what the query wrote before. But in a
    branch, the sink's earlier batches may be in another branch. That case is not refused, because a
    second sink of the query, for this branch, looks the same until the first sink has begun in this
    run.
    """
    if not isinstance(verdict, Fresh) or verdict.own is not None or evidence.has_earlier_run:
        return
    batch = evidence.batch.batch_id
    identity = evidence.identity
    if batch == 0:
        return
    batch_and_branch = evidence.elsewhere(evidence.registered, range(batch))
    if evidence.siblings and batch_and_branch is None:
        return
    where = "if the sink wrote to another table before, the rows are in that table"
    if batch_and_branch is not None:
        written, branch = batch_and_branch
        where = f"this query wrote batch {written} in branch {branch!r}, whose rows stay there"
    _LOG.warning(
        "%s: checkpoint %s begins here with batch %d. The table has no record of its batches 0 to %d: %s. "
        "To have all rows in this table, start with a new checkpoint.",
        table.location,
        identity.checkpoint or f"of commit user {identity.user!r}",
        batch,
        batch - 1,
        where,
    )


def warn_of_sink_options(table: Table) -> None:
    """Warns of sink options that another engine has stored in the table's schema: no writer uses
    them. It is called when a stream or another writer begins, and when these options change during
    a run.
    """
    stored = opt.sink_options_among(table.schema.options)
    if stored:
        _LOG.warning(
            "%s has options of a sink in its schema, where they have no effect: %s. Give them to "
            "PaimonSink as options=…, and remove them with Paimon's ALTER TABLE ... RESET.",
            table.location,
            ", ".join(stored),
        )


def warn_of_work_left(table: Table) -> None:
    """Warns of table options that ask committers for work which this package does not do, of stored
    sink options and of stored credentials. Each warning is one line, which is logged once when a
    stream or batch write begins. So nobody waits for tags or metadata that never come. If
    `write-only` is on, other jobs make the tags, so there is no warning about tags.
    """
    warn_of_sink_options(table)
    options = table.options
    of_a_job: tuple[opt.Option[Any], ...] = ()
    if options.value(opt.WRITE_ONLY):
        of_a_job = (opt.TAG_CALLBACKS, opt.TAG_SUCCESS_FILE)
    ignored = [
        f"{option.key} = {options[option.key]} ({effect})"
        for option, effect in _LEFT_TO_OTHERS.items()
        if options.differs(option) and option not in of_a_job
    ]
    if ignored:
        _LOG.warning(
            "%s has options that this package does not act on: %s. Let a job of Paimon do what "
            "they ask for.",
            table.location,
            "; ".join(ignored),
        )
    secrets = [key for key in table.schema.options if opt.is_secret(key)]
    if secrets:
        _LOG.warning(
            "%s has credentials among its options, where every reader of its folder sees them: %s. "
            "Remove them with Paimon's ALTER TABLE ... RESET, and replace the key in the store.",
            table.location,
            ", ".join(secrets),
        )
