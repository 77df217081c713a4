"""Extends the table's schema for the rows of a batch, if that is allowed, and then aligns the rows
with the schema. Everything is checked before anything is published, so rows that do not fit leave
the schema unchanged. The new schema is published before the rows, so every reader of these rows
finds it (semantics.md §12).
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as st

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import MERGE_SCHEMA, MISSING_COLUMNS
from paimon_stream.runtime import Runtime, system
from paimon_stream.spark.align import Alignment, Fold, align, fold_of, project
from paimon_stream.spark.types import can_up_cast, named, paimon_type, spark_type, written_type
from paimon_stream.stream.operations import operations_of
from paimon_stream.table.schema_change import Mode, fixed_columns, merge_columns, wider
from paimon_stream.table.table import Merge, Table, check_grown

Evolve = Callable[[Merge], Table]
"""Publishes the schema that the merge makes from the table's newest schema. Returns the table with
the new schema.
"""


def fit_rows(
    frame: DataFrame, table: Table, evolve: Evolve, runtime: Runtime | None = None
) -> tuple[Table, DataFrame]:
    """Extends the table's schema by the DataFrame's new columns and types, if
    `paimon-stream.merge-schema` says so, and fits the rows to the schema.

    Args:
        frame: the rows.
        table: the table to write to.
        evolve: `JudgedBatch.evolve`, or for batch writes `partial(evolve, table, overrides=…)` of
            `table/table.py`.
        runtime: gives the time of a new schema.

    Returns:
        The table with the schema for these rows, and a DataFrame of the rows, which are not
        computed yet. The DataFrame has exactly the table's columns. If a column says what each row
        does, it follows as text.

    Raises:
        IncompatibleSchema: the rows do not fit.
        UnsupportedFeature: Paimon does not have a type.
        PaimonStreamError: what `evolve` raises.
    """
    rest, operation = _set_apart(frame, table)
    case_sensitive = is_case_sensitive(frame)
    merge = _merge_of(rest.schema, table, runtime or system(), case_sensitive=case_sensitive)
    if merge is not None:
        table = evolve(merge)
    alignment = _aligned(rest.schema, table, table.schema, case_sensitive=case_sensitive)
    # The column of operations is taken from `frame`, because `rest` lacks it.
    return table, project(frame, alignment, *operation)


def check_rows(frame: DataFrame, table: Table) -> None:
    """Raises what `fit_rows` would raise for these rows, and changes nothing."""
    frame, _ = _set_apart(frame, table)
    check_columns(frame.schema, table, case_sensitive=is_case_sensitive(frame))


def check_columns(
    columns: st.StructType, table: Table, *, case_sensitive: bool = False
) -> TableSchema:
    """The table's schema after a write of these columns. Raises what `fit_rows` would raise, and
    changes nothing.
    """
    merge = _merge_of(columns, table, system(), case_sensitive=case_sensitive)
    schema = table.schema if merge is None else merge(table.schema)
    if schema is not table.schema:
        check_grown(table, schema)
    # The call raises an error for columns that do not fit.
    _aligned(columns, table, schema, case_sensitive=case_sensitive)
    return schema


def check_earlier_columns(schema: TableSchema, table: Table) -> TableSchema:
    """Checks, as `check_columns` does, a DataFrame with exactly the columns of an earlier schema of
    the table. The DataFrame also has the column that `paimon-stream.operation-column` names.
    """
    operations = operations_of(table.options)
    if operations is not None:
        fold = fold_of(case_sensitive=False)
        operations.check(table.schema, table.options, table.location, fold)
    columns = st.StructType(
        [st.StructField(field.name, spark_type(field.type)) for field in schema.fields]
    )
    return check_columns(columns, table)


def _aligned(
    columns: st.StructType, table: Table, schema: TableSchema, *, case_sensitive: bool
) -> Alignment:
    may_lack = table.options.value(MISSING_COLUMNS) == "null"
    return align(
        columns,
        schema,
        case_sensitive=case_sensitive,
        location=table.location,
        missing_are_null=may_lack,
    )


def _set_apart(frame: DataFrame, table: Table) -> tuple[DataFrame, tuple[Column, ...]]:
    """The DataFrame without the column that says what each row does, and that column as text, if
    there is one.
    """
    operations = operations_of(table.options)
    if operations is None:
        return frame, ()
    fold = fold_of(case_sensitive=is_case_sensitive(frame))
    operations.check(table.schema, table.options, table.location, fold)
    names = [name for name in frame.columns if fold(name) == fold(operations.column)]
    operations.only(len(names), table.location)
    name = names[0]
    return frame.drop(name), (named(name).cast("string").alias(operations.column),)


def is_case_sensitive(frame: DataFrame) -> bool:
    """Whether two names that differ only by case are different names in the session of the
    frame.
    """
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def _merge_of(
    columns: st.StructType, table: Table, runtime: Runtime, *, case_sensitive: bool
) -> Merge | None:
    """The function that extends the table's schema for these columns; None if schemas must not
    change.
    """
    mode = table.options.value(MERGE_SCHEMA)
    if mode not in ("add", "widen"):
        return None
    fold = fold_of(case_sensitive=case_sensitive)
    kind: Mode = "widen" if mode == "widen" else "add"  # `mode`, as a type that mypy knows

    def merge(schema: TableSchema) -> TableSchema:
        fixed = {fold(name) for name in fixed_columns(schema)}

        def may_widen(name: str) -> bool:
            return kind == "widen" and name not in fixed

        members = _members(columns, schema.fields, may_widen, fold)
        now = runtime.clock.now_millis()
        merged = merge_columns(schema, members, kind, location=table.location, time_millis=now)
        # The call raises an error for columns that do not fit even into the extended schema.
        _aligned(columns, table, merged, case_sensitive=case_sensitive)
        return merged

    return merge


def _members(
    struct: st.StructType,
    known: tuple[DataField, ...],
    may_widen: Callable[[str], bool],
    fold: Fold,
) -> tuple[DataField, ...]:
    """The DataFrame's columns, or the members of a struct, as columns of Paimon. Names have the
    table's spelling. Each column has the table's type if its values fit into that type unchanged.
    """
    known_by_name = {fold(field.name): field for field in known}
    members = []
    for position, column in enumerate(struct.fields):
        name = column.name
        field = known_by_name.get(fold(name))
        if field is None:
            type_ = _relaxed(paimon_type(column.dataType, name))
        else:
            widen = may_widen(fold(name))
            type_ = _changed(column.dataType, field.type, name, fold, widen=widen)
            name = field.name
        comment = column.metadata.get("comment") if column.metadata else None
        members.append(DataField(id=position, name=name, type=type_, description=comment))
    return tuple(members)


def _relaxed(type_: DataType) -> DataType:
    """The type of a new column. All its parts are nullable, because other rows may have NULLs. Only
    the keys of a MAP are not nullable, because no key of a MAP is NULL.
    """
    key = None if type_.key is None else _relaxed(type_.key).with_nullable(False)
    element = None if type_.element is None else _relaxed(type_.element)
    fields = tuple(replace(member, type=_relaxed(member.type)) for member in type_.fields)
    return replace(type_, nullable=True, key=key, element=element, fields=fields)


def _changed(
    source: st.DataType, old: DataType, column: str, fold: Fold, *, widen: bool
) -> DataType:
    """The type that a column of the table must have for these rows. If the values fit into the
    present type, the type stays the same.

    Args:
        source: the type of the column in the rows.
        old: the present type in the table.
        column: the name of the DataFrame's column, for errors.
        fold: the folding of names.
        widen: whether a type may become wider.
    """
    match source, old:
        case st.StructType(), DataType(root=TypeRoot.ROW):
            return replace(old, fields=_members(source, old.fields, lambda _: widen, fold))
        case st.ArrayType(), DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            changed = _changed(source.elementType, element, column, fold, widen=widen)
            return replace(old, element=changed)
        case st.MapType(), DataType(
            root=TypeRoot.MAP, key=DataType() as key, element=DataType() as value
        ):
            return replace(
                old,
                key=_changed(source.keyType, key, column, fold, widen=False),
                element=_changed(source.valueType, value, column, fold, widen=widen),
            )
    fits = can_up_cast(source, written_type(old, source))
    try:
        new = _relaxed(paimon_type(source, column))
    except UnsupportedFeature:
        if fits:
            return old
        raise
    grows = widen and not new.is_nested and not old.is_nested and wider(old, new) is not None
    return old if fits and not grows else new
