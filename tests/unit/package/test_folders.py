"""The folders of the unit tests are those of the package."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
BESIDE = {"docs", "examples", "kits", "package"}
"""Folders for what lies beside the package's folders. `package` is for its top-level modules."""


def folders(parent: Path) -> set[str]:
    """The names of the folders in it that have Python modules."""
    return {path.parent.name for path in parent.glob("*/*.py")}


def test_each_folder_of_unit_tests_has_the_name_of_a_folder_of_the_package() -> None:
    assert folders(ROOT / "tests" / "unit") - BESIDE <= folders(ROOT / "paimon_stream")


def test_each_folder_of_the_package_has_unit_tests() -> None:
    assert folders(ROOT / "paimon_stream") <= folders(ROOT / "tests" / "unit")
