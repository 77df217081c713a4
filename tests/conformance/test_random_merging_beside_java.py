"""Random tables with a primary key: we refuse what Java refuses, and both read the same rows of either
writer."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import BadRowKind, InvalidData, InvalidOption, NumericOverflow
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.options import Options
from paimon_stream.write.row_kinds import KindRules
from tests.kits.keyed import commit_changes
from tests.kits.merging import Change
from tests.kits.random_tables import Definition, batches, definition
from tests.kits.reading import java_rows, wire_rows
from tests.kits.seeds import seeds
from tests.kits.tables import batch_of


class JavaRefused(Exception):
    """Java raised an error."""


def asked(java_call: Any, *args: Any, **named: Any) -> Any:
    """What Java returns. Raises `JavaRefused`."""
    from py4j.protocol import Py4JJavaError

    try:
        return java_call(*args, **named)
    except Py4JJavaError as error:
        raise JavaRefused(str(error).split("\n\tat")[0][:600]) from None


def ordered(value: Any) -> str:
    """The value as text, with the entries of maps in one order."""
    match value:
        case dict():
            return str(sorted((str(key), ordered(one)) for key, one in value.items()))
        case list() | tuple():
            return str([ordered(one) for one in value])
    return repr(value)


class Twins:
    """The same table twice: one that we write, and one that Java writes."""

    def __init__(self, java: Any, root: Path, table: Definition) -> None:
        self.java = java
        self.table = table
        self.ours, self.theirs = root / "db.db" / "ours", root / "db.db" / "theirs"

    def create(self) -> bool:
        """Creates both tables, with one row. False if both of us refuse the options."""
        first = [("+I", dict.fromkeys(self.table.keys, 99))]
        refusals = []
        for make in (self._create_theirs, self._create_ours):
            try:
                make(first)
            except (JavaRefused, InvalidOption) as why:
                refusals.append(f"{make.__name__}: {why}")
        assert len(refusals) != 1, refusals
        return not refusals

    def _create_theirs(self, first: list[Change]) -> None:
        table = self.table
        asked(self.java.create_table, self.theirs, table.columns, table.partition, table.keys, table.options)
        asked(self.java.write, self.theirs, [row for _, row in first], "java", 0)

    def _create_ours(self, first: list[Change]) -> None:
        table = self.table
        made = PaimonTable.create(
            str(self.ours),
            table.columns,
            partition_keys=table.partition,
            primary_keys=table.keys,
            options=table.options,
        )
        commit_changes(made, first, 0)

    def write(self, batch: list[Change], identifier: int, *, by_append: bool) -> list[Change]:
        """Writes the batch to both tables, without the rows that we refuse. Returns what was written."""
        try:
            self.write_ours(batch, identifier, by_append)
        except NumericOverflow:
            raise
        except InvalidData:
            batch = [(kind, row) for kind, row in batch if kind in ("+I", "+U")]
            self.write_ours(batch, identifier, by_append)
        if batch:
            kinds, rows = zip(*batch, strict=True)
            asked(self.java.write, self.theirs, list(rows), "java", identifier, kinds=list(kinds))
        return batch

    def write_ours(self, batch: list[Change], identifier: int, by_append: bool) -> None:
        table = PaimonTable.load(str(self.ours))
        if not batch:
            return
        if by_append:
            rows = batch_of(table.schema, [row for _, row in batch])
            kinds = pa.array([kind for kind, _ in batch])
            table.append(rows.append_column("op", kinds), operation_column="op")
        else:
            commit_changes(table, batch, identifier)

    def late_delete(self) -> bool:
        """Whether a -D came that is older than its row, which neither of us can read then."""
        table = PaimonTable.load(str(self.ours))
        try:
            table.to_arrow()
        except NumericOverflow:
            raise
        except InvalidData:
            options = Options(table.options)
            merge = MergeSpec.of(table.schema, options)
            assert KindRules.of(table.schema, options, merge).late_deletes
            with pytest.raises(JavaRefused, match="retract"):
                asked(self.java.read, self.ours)
            return True
        return False

    def compare(self, when: str) -> None:
        """Both tables have the same rows, for both readers."""
        seen = {}
        for path in (self.ours, self.theirs):
            table = PaimonTable.load(str(path))
            seen[f"we read {path.name}"] = self._rows(wire_rows(table.to_arrow(), table.schema.fields))
            seen[f"Java reads {path.name}"] = self._rows(asked(java_rows, self.java, table))
        if self.table.options.get("changelog-producer") == "input":
            ours, theirs = (asked(self.java.read_changes, path, 1) for path in (self.ours, self.theirs))
            assert Counter(map(ordered, ours)) == Counter(map(ordered, theirs)), when
        expected = seen["Java reads theirs"]
        for who, rows in seen.items():
            assert rows == expected, (when, who, rows - expected, expected - rows)

    def _rows(self, rows: list[list[Any]]) -> Counter[str]:
        names = [name for name, _ in self.table.columns]
        for at in (names.index(name) for name in self.table.unordered):
            for row in rows:
                row[at] = sorted(row[at], key=str) if isinstance(row[at], list) else row[at]
        texts = map(repr, rows)
        if self.table.options.get("file.format") == "orc":  # Java's reader takes 0.0 for a -0.0 beside it
            texts = (text.replace("-0.0", "0.0") for text in texts)
        return Counter(texts)

    def compact(self) -> None:
        for path in (self.ours, self.theirs):
            asked(self.java.compact, path, True, "java", 100)


def compare_a_random_table(java: Any, root: Path, seed: int) -> str:
    """Compares the table of this seed. Returns what happened to it."""
    random = Random(seed)
    table = definition(random)
    twins = Twins(java, root, table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not twins.create():
            return "refused"
    complete = True
    try:
        for identifier, batch in enumerate(batches(random, table), 1):
            written = twins.write(batch, identifier, by_append=random.random() < 0.5)
            complete &= len(written) == len(batch)
        if twins.late_delete():
            return "late delete"
        twins.compare("merged on read")
    except NumericOverflow:  # Java goes on with a sum of up to 18 digits that is too large for its column
        assert any(type_.startswith(("DECIMAL(4", "DECIMAL(18")) for _, type_ in table.columns)
        return "overflow"
    twins.compact()
    twins.compare("compacted")
    return "compared" if complete else "without deletes"


def happens(refusal: type[Exception], call: Callable[[], Any]) -> bool:
    try:
        call()
    except refusal:
        return False
    return True


def refusal_of_a_random_delete(java: Any, root: Path, seed: int) -> str:
    """Writes a row, then a -U or -D of its key. We refuse the latter exactly if Java could not read both."""
    random = Random(seed)
    table = definition(random)
    while table.options["merge-engine"] not in ("aggregation", "partial-update"):
        table = definition(random)
    twins = Twins(java, root, table)
    changes = [change for batch in batches(random, table) for change in batch]
    _, row = random.choice(changes)
    delete = random.choice(["-U", "-D"]), row | dict.fromkeys(table.keys, 99)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not twins.create():
            return "no table"
    asked(java.write, twins.theirs, [delete[1]], "java", 1, kinds=[delete[0]])
    readable = happens(JavaRefused, lambda: asked(java.read, twins.theirs))
    taken = happens(BadRowKind, lambda: twins.write_ours([delete], 1, by_append=random.random() < 0.5))
    products = {key.split(".")[1] for key, value in table.options.items() if value == "product"}
    by_zero = any(row[name] == 0 for name in products)  # Java fails only if there is a product to divide
    assert taken == readable or (by_zero and not taken), (table.options, table.columns, delete)
    if taken:
        twins.compare("after the delete")
    return "taken" if taken else "refused"


@pytest.mark.parametrize("seed", seeds(10, 300))
def test_a_delete_is_refused_exactly_if_java_could_not_read_it(seed: int, tmp_path: Path, java: Any) -> None:
    refusal_of_a_random_delete(java, tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(15, 400))
def test_random_tables_are_written_and_read_as_by_java(seed: int, tmp_path: Path, java: Any) -> None:
    compare_a_random_table(java, tmp_path, seed)
