"""Random tables with a primary key: we refuse what Java refuses, and both read the same rows of
either writer.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import (
    BadRowKind,
    InvalidData,
    InvalidOption,
    NumericOverflow,
    UnsupportedFeature,
)
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import check_definition, load_table
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


def is_accepted(java: Any, path: Path, made: Definition) -> bool:
    """Creates the table with Java. Whether Java and we accept it."""
    try:
        asked(java.create_table, path, made.columns, made.partition, made.keys, made.options)
        check_definition(load_table(LocalStorage(str(path))))
    except (JavaRefused, InvalidOption):
        return False
    return True


def written_by_either(
    java: Any, path: Path, batch: list[Change], identifier: int, random: Random
) -> None:
    """Java or we write the batch."""
    if random.random() < 0.5:
        commit_changes(PaimonTable.load(str(path)), batch, identifier)
    else:
        kinds, rows = zip(*batch, strict=True)
        asked(java.write, path, list(rows), "java", identifier, kinds=list(kinds))


def ordered(value: Any) -> str:
    """The value as text, with the entries of maps in one order."""
    match value:
        case dict():
            return str(sorted((str(key), ordered(one)) for key, one in value.items()))
        case list() | tuple():
            return str([ordered(one) for one in value])
    return repr(value)


def counted(table: Definition, rows: list[list[Any]]) -> Counter[str]:
    """The rows as texts, with lists in one order where Java defines none."""
    names = [name for name, _ in table.columns]
    for at in (names.index(name) for name in table.unordered):
        for row in rows:
            row[at] = sorted(row[at], key=str) if isinstance(row[at], list) else row[at]
    texts = map(repr, rows)
    if table.options.get("file.format") == "orc":  # Java's reader takes 0.0 for a -0.0 beside it
        texts = (text.replace("-0.0", "0.0") for text in texts)
    return Counter(texts)


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
        asked(
            self.java.create_table,
            self.theirs,
            table.columns,
            table.partition,
            table.keys,
            table.options,
        )
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
        """Writes the batch to both tables, without the rows that we refuse. Returns what was
        written.
        """
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
            seen[f"we read {path.name}"] = counted(
                self.table, wire_rows(table.to_arrow(), table.schema.fields)
            )
            seen[f"Java reads {path.name}"] = counted(
                self.table, asked(java_rows, self.java, table)
            )
        if self.table.options.get("changelog-producer") == "input":
            ours, theirs = (
                asked(self.java.read_changes, path, 1) for path in (self.ours, self.theirs)
            )
            assert Counter(map(ordered, ours)) == Counter(map(ordered, theirs)), when
        expected = seen["Java reads theirs"]
        for who, rows in seen.items():
            assert rows == expected, (when, who, rows - expected, expected - rows)

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
    except (
        NumericOverflow
    ):  # Java goes on with a sum of up to 18 digits that is too large for its column
        assert any(type_.startswith(("DECIMAL(4", "DECIMAL(18")) for _, type_ in table.columns)
        return "overflow"
    twins.compact()
    twins.compare("compacted")
    return "compared" if complete else "without deletes"


LOOKUPS: list[dict[str, str]] = [
    {"changelog-producer": "none"},
    {"changelog-producer": "full-compaction"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "lookup"},
    {"force-lookup": "true"},
    {"deletion-vectors.enabled": "true"},
]
LEVELS = {
    # Compactions take the files of level 0 alone, and leave the levels below as they are.
    "compaction.size-ratio": "-100",
    "compaction.max-size-amplification-percent": "1000000",
    "compaction.force-up-level-0": "true",
    "num-sorted-run.compaction-trigger": "9",
}


def compare_a_random_table_of_levels(java: Any, root: Path, seed: int) -> str:
    """Compares what Java and we read of a table that Java writes and compacts, level by level. Its
    changelog producer may change on the way. Returns what ended that, or the number of levels that
    were compared.
    """
    random, levels = Random(seed), set[int]()
    later = random.choice(LOOKUPS)
    first = (
        random.choice(LOOKUPS[:2])
        if "changelog-producer" in later and random.random() < 0.5
        else later
    )
    for name in count():
        table, path = definition(random), root / "db.db" / f"t{name}"
        table.options.update(LEVELS | first)
        try:
            asked(
                java.create_table, path, table.columns, table.partition, table.keys, table.options
            )
            asked(java.write, path, [dict.fromkeys(table.keys, 99)], "java", 0)
            break
        except JavaRefused:
            continue  # the options contradict each other
    changes = [batch for _ in range(4) for batch in batches(random, table)]
    changed = random.randrange(2, len(changes) + 1)
    try:
        for identifier, batch in enumerate(changes, 1):
            if identifier == changed and first != later:
                asked(java.alter_table, path, *(("set", *item) for item in later.items()))
            write_what_java_takes(java, path, batch, identifier)
            if random.random() < 0.7:
                asked(java.compact, path, random.random() < 0.1, "java", 100 + identifier)
            read = PaimonTable.load(str(path))
            try:
                ours = counted(table, wire_rows(read.to_arrow(), read.schema.fields))
            except (
                NumericOverflow,
                pa.ArrowInvalid,
            ):  # Java stores sums that are too large for their column
                return "overflow"
            except InvalidData:
                with pytest.raises(JavaRefused):
                    asked(java_rows, java, read)
                return "late delete"
            except UnsupportedFeature:
                assert java.index_files(path)
                return "vectors"
            theirs = counted(table, asked(java_rows, java, read))
            assert ours == theirs, (identifier, ours - theirs, theirs - ours)
            levels |= {file.meta.level for file in read.files()}
    except JavaRefused:
        return "refused"
    return f"{len(levels - {0})} levels"


def write_what_java_takes(java: Any, path: Path, batch: list[Change], identifier: int) -> None:
    """Writes the batch. If Java refuses its deletes, writes the other rows."""
    for kinds in (("+I", "+U", "-U", "-D"), ("+I", "+U")):
        taken = [one for one in batch if one[0] in kinds]
        try:
            if taken:
                names, rows = zip(*taken, strict=True)
                asked(java.write, path, list(rows), "java", identifier, kinds=list(names))
            return
        except JavaRefused:
            continue


def happens(refusal: type[Exception], call: Callable[[], Any]) -> bool:
    try:
        call()
    except refusal:
        return False
    return True


def refusal_of_a_random_delete(java: Any, root: Path, seed: int) -> str:
    """Writes a row, then a -U or -D of its key. We refuse the latter exactly if Java could not read
    both.
    """
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
    taken = happens(
        BadRowKind, lambda: twins.write_ours([delete], 1, by_append=random.random() < 0.5)
    )
    products = {key.split(".")[1] for key, value in table.options.items() if value == "product"}
    by_zero = any(
        row[name] == 0 for name in products
    )  # Java fails only if there is a product to divide
    assert taken == readable or (by_zero and not taken), (table.options, table.columns, delete)
    if taken:
        twins.compare("after the delete")
    return "taken" if taken else "refused"


@pytest.mark.parametrize("seed", seeds(4, 300))
def test_a_delete_is_refused_exactly_if_java_could_not_read_it(
    seed: int, tmp_path: Path, java: Any
) -> None:
    refusal_of_a_random_delete(java, tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(5, 400))
def test_random_tables_are_written_and_read_as_by_java(
    seed: int, tmp_path: Path, java: Any
) -> None:
    compare_a_random_table(java, tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(5, 400))
def test_random_tables_of_several_levels_are_read_as_by_java(
    seed: int, tmp_path: Path, java: Any
) -> None:
    compare_a_random_table_of_levels(java, tmp_path, seed)
