"""How easy the package is to read, in figures: `python -m tests.kits.legibility [REVISION …]`.

Each revision of git is a column, and the checkout is the last. The figures are for comparison over
time: which way they go says more than what they are. `--places commit stream` prints where in these
folders the places are that a reader may have to read twice. `--sample 40 --seed 1` prints functions,
docstrings and comments, drawn at random, for somebody to read.
"""

import argparse
import ast
import io
import pathlib
import random
import re
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kits.modules import circles, dotted, imports_of

PACKAGE = "paimon_stream"
ROOT = pathlib.Path(__file__).parents[2]

# Names that stand for anything. A reader has to look up what each of them holds.
EMPTY_NAMES = ("one", "found", "made", "given", "beside", "whole")

# Names of variables that hold a part of a message. Such a message cannot be found by searching.
FRAGMENT_NAMES = ("cure", "text", "why")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module of the package.

    Attributes:
        path: where it is, from the root of the checkout.
        source: its text.
        tree: the same, parsed.
    """

    path: str
    source: str
    tree: ast.Module

    @property
    def dotted(self) -> str:
        """Its name, as an import writes it."""
        return dotted(pathlib.PurePath(self.path))


def modules_of_checkout() -> list[Module]:
    """All modules of the package, as they are in the checkout."""
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    return [parsed(str(file.relative_to(ROOT)), file.read_text()) for file in files]


def modules_at(revision: str) -> list[Module]:
    """All modules of the package at a revision of git."""
    command = ["git", "-C", str(ROOT), "archive", revision, PACKAGE]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    modules = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                modules.append(parsed(member.name, content.read().decode()))
    return sorted(modules, key=lambda module: module.path)


def parsed(path: str, source: str) -> Module:
    return Module(path, source, ast.parse(source))


def counts(modules: list[Module]) -> dict[str, int]:
    """The figures of the package, by what they count."""
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    functions = [node for node in nodes if isinstance(node, Function)]
    trees = {module.dotted: module.tree for module in modules}
    names = Counter(name.id for name in nodes if isinstance(name, ast.Name)) + Counter(
        parameter.arg for function in functions for parameter in parameters(function)
    )
    return {
        "modules": len(modules),
        "lines": sum(module.source.count("\n") for module in modules),
        "syntax nodes": len(nodes),
        "longest function (lines)": max(length(function) for function in functions),
        "functions of more than 50 lines": sum(length(function) > 50 for function in functions),
        "functions of more than 8 parameters": sum(
            len(parameters(function)) > 8 for function in functions
        ),
        "boolean parameters": sum(map(boolean_parameters, functions)),
        "conditional expressions": sum(isinstance(node, ast.IfExp) for node in nodes),
        "tuple or chained assignments": sum(map(is_dense_assignment, nodes)),
        "classes of more than 12 attributes": sum(
            len(attributes(node)) > 12 for node in nodes if isinstance(node, ast.ClassDef)
        ),
        "attributes set outside of constructors": sum(
            len(late_attributes(node)) for node in nodes if isinstance(node, ast.ClassDef)
        ),
        "variables with fragments of messages": sum(map(is_fragment, nodes)),
        "# fmt: skip or off": sum(
            len(re.findall(r"# fmt: (?:skip|off)", module.source)) for module in modules
        ),
        "circles of modules": len(circles(imports_of(trees).at_run_time)),
        **{f"the name `{name}`": names[name] for name in EMPTY_NAMES},
    }


def parameters(function: Function) -> list[ast.arg]:
    """The parameters of a function, without `self` and `cls`."""
    declared = function.args
    listed = [*declared.posonlyargs, *declared.args, *declared.kwonlyargs]
    return [parameter for parameter in listed if parameter.arg not in ("self", "cls")]


def boolean_parameters(function: Function) -> int:
    return sum(
        isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == "bool"
        for parameter in parameters(function)
    )


def is_fragment(node: ast.AST) -> bool:
    """Whether a variable, a parameter or an argument holds a part of a message."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.keyword(arg=name):
            return name in FRAGMENT_NAMES
    return False


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def is_dense_assignment(node: ast.AST) -> bool:
    """Whether a statement sets several variables: `a, b = 1, 2` or `a = b = 1`."""
    if not isinstance(node, ast.Assign):
        return False
    pairs = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
    return pairs or len(node.targets) > 1


def attributes(cls: ast.ClassDef) -> set[str]:
    """The attributes of the instances of a class: declared, or set by one of its methods."""
    declared = {
        statement.target.id
        for statement in cls.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    return declared | {name for method in methods(cls) for name in attributes_set_by(method)}


def late_attributes(cls: ast.ClassDef) -> set[str]:
    """The attributes that are set by a method other than the constructor."""
    return {
        name
        for method in methods(cls)
        if method.name not in ("__init__", "__post_init__")
        for name in attributes_set_by(method)
    }


def methods(cls: ast.ClassDef) -> list[Function]:
    return [statement for statement in cls.body if isinstance(statement, Function)]


def attributes_set_by(method: Function) -> set[str]:
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def places(modules: list[Module]) -> Iterator[str]:
    """Where somebody may have to read twice: a line for each place, in the order of the files."""
    for module in modules:
        lines = [(line, problem) for node in ast.walk(module.tree) for line, problem in hard(node)]
        for line, problem in sorted(lines):
            yield f"{module.path}:{line} {problem}"


def hard(node: ast.AST) -> Iterator[tuple[int, str]]:
    """What is hard to read at a node, each with its line."""
    if isinstance(node, Function):
        if length(node) > 50:
            yield node.lineno, f"{node.name} has {length(node)} lines"
        if boolean_parameters(node):
            yield node.lineno, f"{node.name} has {boolean_parameters(node)} boolean parameters"
    if isinstance(node, ast.ClassDef):
        for name in sorted(late_attributes(node)):
            yield node.lineno, f"{node.name}.{name} is set outside of the constructor"
    if is_dense_assignment(node):
        yield getattr(node, "lineno", 0), "an assignment to several variables"
    is_statement = isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.IfExp):
            continue
        if not is_statement:
            yield child.lineno, "a conditional expression inside another expression"
        elif child.end_lineno != child.lineno:
            yield child.lineno, "a conditional expression of several lines"


def sample(modules: list[Module], size: int, seed: int) -> Iterator[str]:
    """Functions, then docstrings and comments, drawn at random.

    Args:
        modules: where to draw from.
        size: how many functions, and how many texts.
        seed: the same seed draws the same from the same modules.
    """
    draw = random.Random(seed)
    functions = [
        f"{module.path}:{node.lineno}\n{ast.get_source_segment(module.source, node)}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function) and length(node) > 4
    ]
    texts = [text for module in modules for text in prose(module)]
    for drawn in (functions, texts):
        yield from draw.sample(drawn, min(size, len(drawn)))


def prose(module: Module) -> Iterator[str]:
    """The docstrings and comments of a module, each with its place."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            docstring = ast.get_docstring(node)
            if docstring:
                yield f"{module.path}:{getattr(node, 'lineno', 1)}\n{docstring}"
    block: list[str] = []
    for number, line in enumerate([*module.source.splitlines(), ""], start=1):
        if line.strip().startswith("# "):
            block.append(line.strip())
        elif block:
            yield f"{module.path}:{number - len(block)}\n" + "\n".join(block)
            block = []


def main() -> None:
    """Print the figures of revisions side by side, or a sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", help="revisions of git to compare with")
    parser.add_argument("--places", nargs="+", help="folders of the package to list places in")
    parser.add_argument("--sample", type=int, help="print so many functions and texts instead")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    arguments = parser.parse_args()
    if arguments.sample:
        print("\n\n".join(sample(modules_of_checkout(), arguments.sample, arguments.seed)))
        return
    if arguments.places:
        folders = tuple(f"{PACKAGE}/{folder}/" for folder in arguments.places)
        chosen = [module for module in modules_of_checkout() if module.path.startswith(folders)]
        print("\n".join(places(chosen)))
        return
    columns = {revision: counts(modules_at(revision)) for revision in arguments.revisions}
    columns["checkout"] = counts(modules_of_checkout())
    print(f"{'':44}" + "".join(f"{name:>12}" for name in columns))
    for label in columns["checkout"]:
        print(f"{label:44}" + "".join(f"{column[label]:>12,}" for column in columns.values()))


if __name__ == "__main__":
    main()
