"""Everything that users may rely on, a line each: names, parameters, errors, options, metrics,
commands, exit codes and the keys of JSON documents.

python -m tests.kits.surface > tests/persisted/surface.txt
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.testing import CliRunner

import paimon_stream
from docs.generators.cli import commands
from paimon_stream import cdc, errors
from paimon_stream.api.inspection import HistoryEntry
from paimon_stream.change.merge_into import MergeReport
from paimon_stream.cli.app import cli
from paimon_stream.cli.exits import MEANING
from paimon_stream.metrics.commits import METRICS
from paimon_stream.options import sink_options, table_options
from paimon_stream.verify.findings import Finding

__all__ = ["surface"]

_GOLDEN: Final = Path(__file__).parents[1] / "golden"
_NOT_PROMISED: Final = frozenset({"errors", "__version__"})
_INTERNAL: Final = frozenset(
    {
        "CommitReport.measured",
        "CommitReport.of",
        "Merge.check",
        "PaimonCatalog.found",
        "PaimonCatalog.opened",
    }
)
_ALSO: Final = frozenset({Finding, HistoryEntry, MergeReport})
"""Classes that are parts of answers, or answers of answers."""
_OF_REPORTS: Final = frozenset({"also_in_json"})
_ONLY_A_NAME: Final = frozenset({"PaimonDataSource"})
"""Classes that users name, and whose members are for Spark."""
_DOCUMENTS: Final = {
    "snapshots": "append_partitioned",
    "files": "append_partitioned",
    "manifests": "append_partitioned",
    "partitions": "append_partitioned",
    "stats": "pk_updates",
    "schema": "pk_updates",
    "options": "pk_updates",
    "query": "append_partitioned",
    "verify": "append_partitioned",
    "head": "pk_updates",
    "tag list": "append_partitioned",
    "branch list": "append_partitioned",
    "orphans": "append_partitioned",
    "expire": "append_partitioned",
    "compact": "compaction/append_remainder",
}
"""The commands whose JSON document is looked at, and the golden table of each."""
_OF_DATA: Final = frozenset({"partition", "options", "properties", "rows"})
"""Keys of documents whose own keys are data of the table."""


def surface() -> str:
    """The whole list, as text."""
    parts = (_names(), _errors(), _options(), _metrics(), _commands(), _exits(), _documents())
    return "".join(f"{line}\n" for part in parts for line in part)


def _names() -> Iterator[str]:
    names = sorted({*paimon_stream.__all__} - _NOT_PROMISED)
    values = {name: getattr(paimon_stream, name) for name in names}
    values |= {f"cdc.{name}": getattr(cdc, name) for name in cdc.__all__}
    for name, value in values.items():
        yield from _lines_of(name, value)
    answers = {answer for value in values.values() for answer in _answers_of(value)} | _ALSO
    for answer in sorted(answers - {*values.values()}, key=lambda answer: answer.__name__):
        yield from (
            f"answer {answer.__name__}.{member}{_call(answer, member)}"
            for member in _members(answer)
            if member not in _OF_REPORTS
        )


def _answers_of(value: Any) -> set[type]:
    """The classes of this package that the public methods of a class, or a function, return."""
    members = [inspect.getattr_static(value, name) for name in dir(value) if name[0] != "_"]
    answers: set[type] = set()
    for member in [value, *members]:
        function = getattr(member, "fget", getattr(member, "__func__", member))
        annotation = getattr(function, "__annotations__", {}).get("return")
        for part in (annotation, *typing.get_args(annotation)):
            if inspect.isclass(part) and part.__module__.startswith("paimon_stream."):
                answers.add(part)
    return answers


def _lines_of(name: str, value: Any) -> Iterator[str]:
    """The lines of a class or a function."""
    if name in _ONLY_A_NAME:
        yield f"name {name}"
        return
    yield f"name {name}{_parameters(value)}"
    if inspect.isclass(value):
        for member in _members(value):
            if f"{name}.{member}" not in _INTERNAL:
                yield f"name {name}.{member}{_call(value, member)}"


def _members(owner: type) -> list[str]:
    """The public attributes and methods of a class that this package defines."""
    fields = {field.name for field in dataclasses.fields(owner)} if _is_data(owner) else set()
    members = {*dir(owner), *fields, *getattr(owner, "_fields", ())}
    return sorted(
        member for member in members if member[0] != "_" and _is_ours(owner, member, fields)
    )


def _call(owner: type, member: str) -> str:
    """The parameters of a method; empty for an attribute."""
    attribute = inspect.getattr_static(owner, member, None)
    function = getattr(attribute, "__func__", attribute)
    return _parameters(getattr(owner, member)) if inspect.isfunction(function) else ""


def _is_data(value: type) -> bool:
    return dataclasses.is_dataclass(value)


def _is_ours(owner: type, member: str, fields: set[str]) -> bool:
    """Whether a class of this package defines the member, and not one of Spark or of Python."""
    if member in fields:
        return True
    homes = [base.__module__ for base in owner.__mro__ if member in vars(base)]
    return bool(homes) and homes[0].startswith("paimon_stream")


def _parameters(function: Any) -> str:
    """The parameters with their defaults, without types."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    plain = (parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters)
    signature = inspect.Signature([each for each in plain if each.name != "self"])
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", str(signature))


def _errors() -> Iterator[str]:
    for name, value in sorted(vars(errors).items()):
        if inspect.isclass(value) and issubclass(value, errors.PaimonStreamError):
            parents = ", ".join(base.__name__ for base in value.__bases__)
            yield f"error {name}({parents})"


def _options() -> Iterator[str]:
    for kind, options in (("sink option", sink_options()), ("table option", table_options())):
        for option in sorted(options, key=lambda option: option.key):
            yield f"{kind} {option.key} = {option.default}"
            yield from (f"{kind} {alias} is {option.key}" for alias in sorted(option.aliases))


def _metrics() -> Iterator[str]:
    yield from (f"metric {name}" for name in sorted(METRICS))


def _commands() -> Iterator[str]:
    for name, command in sorted(commands(), key=lambda named: named[0]):
        yield from _parameters_of_command(name, command)


def _parameters_of_command(name: str, command: click.Command) -> Iterator[str]:
    yield f"command {name}"
    for parameter in command.params:
        yield f"command {name} {'/'.join((*parameter.opts, *parameter.secondary_opts))}"


def _exits() -> Iterator[str]:
    yield from (f"exit code {code}: {meaning}" for code, meaning in sorted(MEANING.items()))


def _documents() -> Iterator[str]:
    for name, table in _DOCUMENTS.items():
        location = str(_GOLDEN / table / "db.db" / "t")
        answer = CliRunner().invoke(cli, [*name.split(), "--json", location])
        keys = sorted(set(_keys_of(json.loads(answer.stdout), "")))
        yield from (f"json {name}: {key}" for key in keys)


def _keys_of(value: Any, path: str) -> Iterator[str]:
    """The path of each key in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}{key}"
            if key not in _OF_DATA:
                yield from _keys_of(inner, f"{path}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from _keys_of(inner, path)


if __name__ == "__main__":
    sys.stdout.write(surface())
