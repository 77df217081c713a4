"""The options of tables that say how rows of one key are merged, with Paimon's keys and defaults."""

from paimon_stream.options.option import Option, one_of, switch, text

MERGE_ENGINE = Option(
    "merge-engine", one_of("deduplicate", "partial-update", "aggregation", "first-row"), "deduplicate",
    "How rows with the same key are merged.",
)  # fmt: skip
SEQUENCE_FIELD = Option(
    "sequence.field", text, "",
    "Columns that order the rows of one key, separated by commas. If not set: their order of arrival.",
)  # fmt: skip
SEQUENCE_SORT_ORDER = Option(
    "sequence.field.sort-order", one_of("ascending", "descending"), "ascending",
    "Whether the largest or the smallest value of sequence.field is the newest.",
)  # fmt: skip
IGNORE_DELETE = switch(
    "ignore-delete",
    "Ignore -D rows.",
    aliases=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
)
DEFAULT_AGGREGATE_FUNCTION = Option(
    "fields.default-aggregate-function", text, None, "The default aggregate function of columns."
)
AGGREGATION_REMOVE_ON_DELETE = switch(
    "aggregation.remove-record-on-delete", "A -D row deletes the whole row instead of retracting values."
)
PARTIAL_UPDATE_REMOVE_ON_DELETE = switch(
    "partial-update.remove-record-on-delete", "A -D row deletes the whole row, not single values."
)
PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP = Option(
    "partial-update.remove-record-on-sequence-group", text, "",
    "Columns that order sequence groups, separated by commas. A -D row in such a group deletes the row.",
)  # fmt: skip
