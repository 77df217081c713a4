"""The package's modules as their source shows them: who imports whom, which names are given twice,
and which options of sinks each folder reads.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

import paimon_stream

PACKAGE = Path(paimon_stream.__file__).parent
ROOT_NAME = PACKAGE.name

Graph = Mapping[str, frozenset[str]]
"""The modules that each module imports."""


@cache
def sources() -> Mapping[str, ast.Module]:
    """The syntax tree of each module by its dotted name."""
    return {
        dotted(path.relative_to(PACKAGE.parent)): ast.parse(path.read_text(), str(path))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def dotted(path: PurePath) -> str:
    """The name of the module in a file below the root of the checkout."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(module: str) -> str:
    """The folder of a module: the second part of its name; empty for the package's own modules."""
    parts = module.split(".")
    is_package = (PACKAGE.parent / Path(*parts) / "__init__.py").is_file()
    return parts[1] if len(parts) > 2 or (len(parts) == 2 and is_package) else ""


# -- imports


@dataclass(frozen=True)
class Imports:
    """Two graphs of the package's modules. `at_run_time` has the imports inside functions, too, and
    those by a module's name as text. `for_types` has only those that type checkers alone follow.
    """

    at_run_time: Graph
    for_types: Graph


@cache
def imports() -> Imports:
    """Who imports whom in the package."""
    return imports_of(sources())


def imports_of(trees: Mapping[str, ast.Module]) -> Imports:
    """Who imports whom among these modules."""
    run_time: dict[str, set[str]] = {module: set() for module in trees}
    for_types: dict[str, set[str]] = {module: set() for module in trees}
    for module, tree in trees.items():
        of_types = {id(node) for block in _type_blocks(tree) for node in ast.walk(block)}
        for node in ast.walk(tree):
            graph = for_types if id(node) in of_types else run_time
            graph[module].update(set(_targets(node, module, trees.keys())) - {module})
    return Imports(_frozen(run_time), _frozen(for_types))


def _frozen(graph: Mapping[str, set[str]]) -> Graph:
    return {module: frozenset(targets) for module, targets in graph.items()}


def _type_blocks(tree: ast.Module) -> Iterator[ast.stmt]:
    """What stands under `if TYPE_CHECKING`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from node.body


def _targets(node: ast.AST, module: str, known: Collection[str]) -> Iterator[str]:
    """The `known` modules that this node imports."""
    match node:
        case ast.Import(names=names):
            yield from (one.name for one in names if one.name in known)
        case ast.ImportFrom(module=str(source), level=0, names=names):
            for one in names:
                inner = f"{source}.{one.name}"
                if inner in known:
                    yield inner
                elif source in known:
                    yield source
        case ast.ImportFrom(level=level) if level:
            raise AssertionError(f"{module} has a relative import, which is not followed here")
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if "." in name:
            if name in known:  # as `require("paimon_stream.spark.write_job", …)`
                yield name
        case ast.Call(args=[ast.JoinedStr(values=[ast.Constant(value=str(begin)), *_]), *_]):
            if begin.startswith(
                f"{ROOT_NAME}."
            ):  # as `require(f"paimon_stream.catalogs.{kind}", …)`
                yield from (one for one in known if one.startswith(begin))


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that reach each other, each sorted: strongly connected parts of more
    than one module (Tarjan's algorithm).
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_ones: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        open_ones.append(module)
        for target in sorted(graph[module]):
            if target not in number:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in open_ones:
                lowest[module] = min(lowest[module], number[target])
        if lowest[module] == number[module]:
            at = open_ones.index(module)
            part = open_ones[at:]
            del open_ones[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return sorted(found)


def joined(first: Graph, second: Graph) -> Graph:
    """The imports of both graphs."""
    return {module: first[module] | second[module] for module in first}


# -- names


def equal_module_names() -> Mapping[str, list[str]]:
    """The names of files that several folders have, with these folders."""
    folders: dict[str, list[str]] = defaultdict(list)
    for module in sources():
        folder = folder_of(module)
        name = module.rpartition(".")[2]
        if folder and name != folder:
            folders[name].append(folder)
    return {name: sorted(some) for name, some in sorted(folders.items()) if len(some) > 1}


def equal_class_names() -> Mapping[str, list[str]]:
    """The names of classes that several modules define, with these modules, without the root's
    name.
    """
    modules: dict[str, set[str]] = defaultdict(set)
    for module, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(module.removeprefix(f"{ROOT_NAME}."))
    return {name: sorted(some) for name, some in sorted(modules.items()) if len(some) > 1}


# -- options of sinks


@cache
def sink_options() -> Mapping[str, str]:
    """The keys of all options of sinks by the names of their constants, as they are declared."""
    declared = sources()[f"{ROOT_NAME}.options.of_sinks"]
    found: dict[str, str] = {}
    for node in declared.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
            key, (target,) = node.value.args[0], node.targets
            if isinstance(key, ast.Constant) and isinstance(target, ast.Name):
                found[target.id] = str(key.value)
    return found


@cache
def sink_options_read() -> Mapping[str, list[str]]:
    """The keys of the options of sinks that each folder reads, without their prefix. A key that is
    only put into a message, or into the `option` of an error, names the option and reads nothing.
    """
    read: dict[str, set[str]] = defaultdict(set)
    for module, tree in sources().items():
        folder = folder_of(module)
        if folder not in ("", "options"):
            read[folder].update(_options_read(tree))
    return {folder: sorted(keys) for folder, keys in sorted(read.items()) if keys}


def _options_read(tree: ast.Module) -> Iterator[str]:
    declared, named = sink_options(), set(map(id, _keys_in_messages(tree)))
    folders = _names_of_options(tree)
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.attr if node.value.id in folders else ""
        if name in declared and id(node) not in named and isinstance(node, ast.expr):
            yield declared[name].removeprefix("paimon-stream.")


def _names_of_options(tree: ast.Module) -> set[str]:
    """What the module calls the package's folder of options."""
    return {
        one.asname or one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == ROOT_NAME
        for one in node.names
        if one.name == "options"
    }


def _keys_in_messages(tree: ast.Module) -> Iterator[ast.expr]:
    """The constants of options whose keys are put into a text or into the `option` of an error."""
    for node in ast.walk(tree):
        inside: ast.AST | None = None
        if isinstance(node, ast.FormattedValue) or (
            isinstance(node, ast.keyword) and node.arg == "option"
        ):
            inside = node.value
        if isinstance(inside, ast.Attribute) and inside.attr == "key":
            yield inside.value
