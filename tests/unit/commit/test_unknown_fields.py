"""What a commit would lose of an index manifest is refused by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.index_changes import apply_index_changes
from paimon_stream.commit.plan import IndexChange
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.entries import FileKind, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.unknown_fields import UnknownField

pytestmark = pytest.mark.lowest

NEW = UnknownField(("_NEW",), '["null", "int"]', b"\2\2")


def entry(name: str, bucket: int = 0) -> IndexManifestEntry:
    file = IndexFileMeta(index_type="HASH", file_name=name, file_size=4, row_count=1)
    return IndexManifestEntry(partition=b"", bucket=bucket, file=file)


NEWER = replace(entry("index-0"), unknown=(NEW,))


def applied(*changes: tuple[FileKind, IndexManifestEntry]) -> tuple[IndexManifestEntry, ...]:
    some = [IndexChange(kind=kind, entry=of) for kind, of in changes]
    return apply_index_changes([NEWER], some, bucketed=True, location="t")


def test_an_index_file_with_it_is_not_replaced() -> None:
    with pytest.raises(UnsupportedFeature, match=r"index-0 .*_NEW"):
        applied((FileKind.ADD, entry("index-1")))


def test_other_index_files_are_and_it_may_go() -> None:
    other = entry("index-1", bucket=1)
    assert applied((FileKind.ADD, other)) == (NEWER, other)
    assert applied((FileKind.DELETE, entry("index-0"))) == ()
