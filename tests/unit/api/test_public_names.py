"""The names that users may rely on, and the cost of importing them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import paimon_stream

HOME = Path(paimon_stream.__file__).parent
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages([str(HOME)], "paimon_stream.")
    if not name.rpartition(".")[2].startswith("_")
]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)


def test_the_package_offers_exactly_the_names_it_documents() -> None:
    assert set(paimon_stream.__all__) == {
        "CommitMessage",
        "CommitReport",
        "Merge",
        "PaimonCatalog",
        "PaimonDataSource",
        "PaimonSink",
        "PaimonTable",
        "SchemaChange",
        "__version__",
        "assign_buckets",
        "catalog",
        "errors",
        "register",
        "register_views",
    }


def test_the_module_of_change_events_offers_exactly_the_names_it_documents() -> None:
    from paimon_stream import cdc

    assert cdc.__all__ == ["canal", "debezium", "maxwell"]


def test_nothing_else_leaks_from_the_package() -> None:
    names = {*vars(paimon_stream), *dir(paimon_stream)}
    public = {
        name
        for name in names
        if not name.startswith("_") and not isinstance(vars(paimon_stream).get(name), ModuleType)
    }
    assert public == set(paimon_stream.__all__) - {"errors", "__version__"}


def test_every_module_has_a_docstring_and_the_names_that_it_lists() -> None:
    without_spark = importlib.util.find_spec("pyspark") is None
    without_sources = without_spark or importlib.util.find_spec("pyspark.sql.datasource") is None
    without_click = None in map(importlib.util.find_spec, ("click", "rich"))
    for name in MODULES:
        if without_spark and name.startswith("paimon_stream.spark."):
            continue
        if without_sources and name.startswith("paimon_stream.spark.datasource"):
            continue
        if without_click and name.startswith("paimon_stream.cli."):
            continue
        module = importlib.import_module(name)
        listed = getattr(module, "__all__", [])
        if hasattr(module, "__path__") and not listed:
            continue  # a folder's __init__ that offers nothing
        assert module.__doc__, f"{name} has no docstring"
        assert len(set(listed)) == len(listed), f"{name} names something twice"
        missing = [one for one in listed if not hasattr(module, one)]
        assert not missing, f"{name} names {missing} in __all__ and does not have them"


def test_no_module_uses_a_name_that_another_module_keeps_to_itself() -> None:
    found = []
    for path in HOME.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                private = [one.name for one in node.names if re.match("_[^_]", one.name)]
                found += [
                    f"{path.relative_to(HOME)} imports {one} of {node.module}" for one in private
                ]
    assert found == []


def test_type_checkers_find_that_the_package_is_typed() -> None:
    assert (HOME / "py.typed").is_file()


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib import metadata

    assert paimon_stream.__version__ == metadata.version("paimon-stream")


@pytest.mark.parametrize(
    "module", ["paimon_stream", "paimon_stream.write.task", "paimon_stream.api.table"]
)
def test_importing_does_not_import_pyspark(module: str) -> None:
    done = run(
        f"import sys, {module}; sys.exit('pyspark' in sys.modules or 'pandas' in sys.modules)"
    )
    assert done.returncode == 0, done.stderr


def test_without_pyspark_the_sink_names_the_extra_to_install() -> None:
    done = run(
        "import sys; sys.modules['pyspark'] = None\n"
        "from paimon_stream import PaimonSink, errors\n"
        "try: PaimonSink('somewhere')\n"
        "except errors.MissingExtra as missing: print(missing.context['extra'], missing)\n"
    )
    assert done.stdout.startswith("spark "), done.stdout + done.stderr
    assert "run pip install '.[spark]'" in done.stdout


def test_without_pyspark_or_with_an_old_one_the_data_source_names_the_cure() -> None:
    code = (
        "import sys; sys.modules[{missing!r}] = None\n"
        "import paimon_stream\n"
        "try: paimon_stream.PaimonDataSource\n"
        "except paimon_stream.errors.ConfigError as error: print(type(error).__name__, error)\n"
    )
    assert run(code.format(missing="pyspark")).stdout.startswith("MissingExtra ")
    pytest.importorskip("pyspark.sql", reason="needs pyspark")
    told = run(code.format(missing="pyspark.sql.datasource")).stdout
    assert told.startswith("UnsupportedFeature ") and "PaimonSink" in told
