"""Fits rows and table together: extends the table's schema if that is allowed, then aligns the
rows. Everything is checked before anything is published, so rows that do not fit leave the schema
unchanged. The new schema is published before the rows, so every reader of these rows finds it
(semantics.md §12).
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
from paimon_stream.spark.types import can_up_cast, named, paimon_type, spark_type
from paimon_stream.stream.operations import operations_of
from paimon_stream.table.schema_change import Mode, fixed_columns, merge_columns, wider
from paimon_stream.table.table import Merge, Table, check_grown

Evolve = Callable[[Merge], Table]
"""Publishes the schema that the merge makes of the table's newest schema. Returns the table with
it.
"""


def fit_rows(
    frame: DataFrame, table: Table, evolve: Evolve, runtime: Runtime | None = None
) -> tuple[Table, DataFrame]:
    """The table, and the rows, lazily, in exactly the table's columns, followed by the column that
    says what each row does, if there is one, as text. If `paimon-stream.merge-schema` says so, the
    table's schema is extended by the DataFrame's new columns and types. `evolve` is
    `JudgedBatch.evolve`, or `partial(evolve, table, overrides=…)` of `table/table.py` for batch
    writes. Raises `IncompatibleSchema`, `UnsupportedFeature` for types that Paimon does not have,
    and what `evolve` raises.
    """
    given, operation = _set_apart(frame, table)
    merge = _merge_of(given.schema, table, runtime or system(), is_case_sensitive(given))
    if merge is not None:
        table = evolve(merge)
    alignment = _aligned(given.schema, table, table.schema, is_case_sensitive(given))
    return table, project(frame, alignment, *operation)


def check_rows(frame: DataFrame, table: Table) -> None:
    """Raises what `fit_rows` would raise, and changes nothing."""
    frame, _ = _set_apart(frame, table)
    check_columns(frame.schema, table, case_sensitive=is_case_sensitive(frame))


def check_columns(
    columns: st.StructType, table: Table, *, case_sensitive: bool = False
) -> TableSchema:
    """The table's schema after a write of these columns. Raises what `fit_rows` would raise, and
    changes nothing.
    """
    merge = _merge_of(columns, table, system(), case_sensitive)
    schema = table.schema if merge is None else merge(table.schema)
    if schema is not table.schema:
        check_grown(table, schema)
    _aligned(columns, table, schema, case_sensitive)
    return schema


def check_earlier_columns(schema: TableSchema, table: Table) -> TableSchema:
    """Does what `check_columns` does, for a DataFrame with exactly the columns of an earlier schema
    of the table and the column that `paimon-stream.operation-column` names.
    """
    beside = operations_of(table.options)
    if beside is not None:
        beside.check(table.schema, table.options, table.location, fold_of(False))
    columns = st.StructType(
        [st.StructField(one.name, spark_type(one.type)) for one in schema.fields]
    )
    return check_columns(columns, table)


def _aligned(
    columns: st.StructType, table: Table, schema: TableSchema, case_sensitive: bool
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
    beside = operations_of(table.options)
    if beside is None:
        return frame, ()
    fold = fold_of(is_case_sensitive(frame))
    beside.check(table.schema, table.options, table.location, fold)
    same = [name for name in frame.columns if fold(name) == fold(beside.column)]
    beside.only(len(same), table.location)
    return frame.drop(same[0]), (named(same[0]).cast("string").alias(beside.column),)


def is_case_sensitive(frame: DataFrame) -> bool:
    """Whether the session of the frame tells names apart that differ only by case."""
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def _merge_of(
    columns: st.StructType, table: Table, runtime: Runtime, case_sensitive: bool
) -> Merge | None:
    """The function that extends the table's schema for these columns; None if schemas must not
    change.
    """
    mode = table.options.value(MERGE_SCHEMA)
    if mode not in ("add", "widen"):
        return None
    fold = fold_of(case_sensitive)
    kind: Mode = "widen" if mode == "widen" else "add"

    def merge(schema: TableSchema) -> TableSchema:
        fixed = {fold(name) for name in fixed_columns(schema)}
        members = _members(
            columns, schema.fields, lambda name: kind == "widen" and name not in fixed, fold
        )
        now = runtime.clock.now_millis()
        merged = merge_columns(schema, members, kind, location=table.location, time_millis=now)
        _aligned(columns, table, merged, case_sensitive)
        return merged

    return merge


def _members(
    struct: st.StructType,
    known: tuple[DataField, ...],
    may_widen: Callable[[str], bool],
    fold: Fold,
) -> tuple[DataField, ...]:
    """The DataFrame's columns, or the members of a struct, as Paimon's. Names have the table's
    spelling, and each has the table's type if its values fit into that type unchanged.
    """
    old = {fold(one.name): one for one in known}
    made = []
    for position, one in enumerate(struct.fields):
        before = old.get(fold(one.name))
        if before is None:
            type_, name = _relaxed(paimon_type(one.dataType, one.name)), one.name
        else:
            widen = may_widen(fold(one.name))
            type_, name = _changed(one.dataType, before.type, one.name, widen, fold), before.name
        comment = one.metadata.get("comment") if one.metadata else None
        made.append(DataField(id=position, name=name, type=type_, description=comment))
    return tuple(made)


def _relaxed(type_: DataType) -> DataType:
    """The type of a new column. All its parts are nullable, because other rows may have NULLs."""
    key = None if type_.key is None else _relaxed(type_.key).with_nullable(False)
    element = None if type_.element is None else _relaxed(type_.element)
    fields = tuple(replace(one, type=_relaxed(one.type)) for one in type_.fields)
    return replace(type_, nullable=True, key=key, element=element, fields=fields)


def _changed(source: st.DataType, old: DataType, column: str, widen: bool, fold: Fold) -> DataType:
    """The type that the rows require in place of the table's: the same one if the values fit."""
    match source, old:
        case st.StructType(), DataType(root=TypeRoot.ROW):
            return replace(old, fields=_members(source, old.fields, lambda _: widen, fold))
        case st.ArrayType(), DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return replace(old, element=_changed(source.elementType, element, column, widen, fold))
        case st.MapType(), DataType(
            root=TypeRoot.MAP, key=DataType() as key, element=DataType() as value
        ):
            kept = _changed(source.keyType, key, column, False, fold)
            return replace(
                old, key=kept, element=_changed(source.valueType, value, column, widen, fold)
            )
    fits = can_up_cast(source, spark_type(old))
    try:
        new = _relaxed(paimon_type(source, column))
    except UnsupportedFeature:
        if fits:
            return old
        raise
    grows = widen and not new.is_nested and not old.is_nested and wider(old, new) is not None
    return old if fits and not grows else new
