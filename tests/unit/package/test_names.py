"""Names that tell files and classes apart: what is listed here may have a namesake, and nothing else."""

from __future__ import annotations

from tests.kits.modules import equal_class_names, equal_module_names

SAME_FILES = {
    "checks": {"commit", "options"},
    "doctor": {"api", "cli"},
    "files": {"change", "cli", "verify"},
    "identity": {"spark", "stream"},
    "manifests": {"table", "verify"},
    "memory": {"storage", "stream"},
    "orphans": {"cli", "maintenance"},
    "output": {"cli", "write"},
    "publish": {"commit", "compact"},
    "report": {"cli", "commit"},
    "rows": {"cli", "merge", "read"},
    "schema": {"cli", "table"},
    "snapshots": {"cli", "table"},
    "tags": {"cli", "maintenance"},
    "types": {"format", "spark"},
    "vectors": {"commit", "table"},
}
"""The folders whose files of one name are told apart by their folder: a command and what it shows, or
the part of a subject that the folder has.
"""
FINDINGS = {"Finding", "Findings"}
"""What verification reports, and what the judgement has found out."""
MERGES = {"Merge"}
"""The merge that a user describes, and what a compaction merges."""


def test_files_of_one_name_are_those_that_their_folders_tell_apart() -> None:
    for name, folders in equal_module_names().items():
        assert set(folders) <= SAME_FILES.get(name, set()), f"{name} is in {folders}"


def test_classes_of_one_name_are_few_and_known() -> None:
    same = equal_class_names()
    assert same.keys() <= FINDINGS | MERGES, same
