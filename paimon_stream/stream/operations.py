"""The column that says what each row does to its key, as the options of a writer name it."""

from paimon_stream.errors import InvalidOption
from paimon_stream.options import OPERATION_COLUMN, OPERATION_MAPPING, Options
from paimon_stream.write.row_kinds import Operations


def operations_of(options: Options) -> Operations | None:
    """The column that the options name, with the meaning of its values; None if they name no
    column. Raises `InvalidOption`.
    """
    if not options.is_set(OPERATION_COLUMN):
        if options.is_set(OPERATION_MAPPING):
            raise InvalidOption(
                f"{OPERATION_MAPPING.key} is set, but {OPERATION_COLUMN.key} is not, so there is nothing to map. "
                "Name the column, or leave the mapping out.",
                option=OPERATION_MAPPING.key,
            )
        return None
    mapping = None
    if options.is_set(OPERATION_MAPPING):
        mapping = options.value(OPERATION_MAPPING)
    return Operations.of(options.value(OPERATION_COLUMN), mapping)
