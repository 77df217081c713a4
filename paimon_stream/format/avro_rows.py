"""Rows of a few fields out of Avro records, by a function that is generated for their writer's schema.

A generic reader makes objects of every field. Of a manifest's 60 values per entry mostly a few are wanted,
and often only of the entries of one partition; stepping over the others is a matter of adding their lengths
(https://avro.apache.org/docs/1.11.1/specification/#binary-encoding). The functions made here do that in
straight code: one pass from the first record of a block to the last, each record beginning where the one
before ended, so that nothing is ever searched for.

Invariants: a function either gives exactly what a generic reader gives, or raises one of `ODD` (bytes that
do not fit the schema, an encoding that is allowed but unusual, a version that is not the one expected);
then the caller reads that block with the generic reader, which judges. A schema with a type that is not
known here gets no function. Text that is stepped over is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from paimon_stream.format.avro_file import zigzag

__all__ = ["ODD", "Reader", "reader_of"]

Reader: TypeAlias = Callable[[bytes, int, Callable[[bytes], bool]], list[tuple[Any, ...]]]
"""Of a block's plain bytes, the number of its records, and which values of the picked field are wanted:
the rows. Without a picked field the last is not called."""

ODD: Final = (ValueError, IndexError)

_FIXED: Final = {"boolean": 1, "float": 4, "double": 8}
_LONG_LIMIT: Final = 1 << 64


class _Unknown(Exception):
    """A type that no code is generated for."""


def reader_of(
    schema: Mapping[str, Any],
    paths: Sequence[str],
    version: tuple[str, int],
    pick: str | None,
    steady: Collection[str] = (),
) -> Reader | None:
    """The function that reads the values at these paths (`_FILE._LEVEL`), None where the schema has no such
    field. `version` is a field and what it must hold. `pick` is one of the paths, of the outermost record:
    records whose value there is not wanted are stepped over. `steady` are paths of fields that tend to be the
    same from record to record; that matters for speed only. None for a schema that is not known here.
    """
    try:
        code = "\n".join(_Source(paths, version, pick, steady).lines(schema))
    except _Unknown:
        return None
    made: dict[str, Any] = {"ODD": ValueError("unusual")}
    exec(compile(code, "<records>", "exec"), made)
    reader: Reader = made["read"]
    return reader


class _Source:
    """The text of one function. Names: `d` the bytes, `p` the position, `b` what was just read; `v0`, `v1`,
    … the values wanted."""

    def __init__(
        self, paths: Sequence[str], version: tuple[str, int], pick: str | None, steady: Collection[str]
    ) -> None:
        self._paths = {path: f"v{number}" for number, path in enumerate(paths)}
        self._version = version
        self._pick = pick
        self._steady = frozenset(steady)
        self._runs = 0
        self._depth = 0

    def lines(self, schema: Mapping[str, Any]) -> Iterator[str]:
        """The whole function."""
        if schema.get("type") != "record" or not schema.get("fields"):
            raise _Unknown
        steps = [(one["name"], one["type"]) for one in schema["fields"]]
        body = list(self._record(steps))
        yield "def read(d, n, wants):"
        yield "    p = 0; rows = []; add = rows.append; known = None; wanted = False"
        yield from (f"    {value} = None" for value in self._paths.values())
        yield from (f"    r{run} = (); l{run} = 0" for run in range(self._runs))
        yield "    for _ in range(n):"
        yield from _deeper(body, 2)
        yield "    if p != len(d): raise ODD"
        yield "    return rows"

    def _record(self, steps: Sequence[tuple[str, Any]]) -> Iterator[str]:
        names = [name for name, _ in steps]
        split = names.index(self._pick) + 1 if self._pick in names else None
        row = f"add(({', '.join(self._paths.values())},))"
        yield from self._fields(steps[:split], "", True)
        if split is None:
            yield row
            return
        value = self._paths[names[split - 1]]
        yield f"if {value} != known: known = {value}; wanted = wants(known)"
        yield "if wanted:"
        yield from _deeper((*self._fields(steps[split:], "", True), row), 1)
        yield "else:"
        yield from _deeper((*self._fields(steps[split:], "", False), "pass"), 1)

    def _fields(self, steps: Sequence[tuple[str, Any]], above: str, read: bool) -> Iterator[str]:
        """Code for fields that follow on one another, the steady ones as runs.

        What a run of fields takes up follows from its bytes alone, one after another. So where the bytes of
        the last record's run come again, they are the whole run again, and its values are those at hand.
        """
        for is_steady, some in groupby(steps, lambda one: above + one[0] in self._steady):
            if not is_steady:
                yield from self._each(some, above, read)
                continue
            run, self._runs = self._runs, self._runs + 1
            yield f"if d.startswith(r{run}, p): p += l{run}"
            yield "else:"
            yield f"    at{run} = p"
            yield from _deeper(self._each(some, above, read), 1)
            yield f"    r{run} = d[at{run}:p]; l{run} = p - at{run}"

    def _each(self, steps: Iterable[tuple[str, Any]], above: str, read: bool) -> Iterator[str]:
        for name, type_ in steps:
            path = above + name
            if path == self._version[0]:
                yield from self._expect(type_)
                continue
            inner = _plain(type_)
            if isinstance(inner, dict) and inner.get("type") == "record":
                yield from self._fields([(f["name"], f["type"]) for f in inner["fields"]], f"{path}.", read)
                continue
            if any(one.startswith(f"{path}.") for one in self._paths):
                raise _Unknown
            target = self._paths.get(path)
            yield from self._value(type_, target if read else None)

    def _expect(self, type_: Any) -> Iterator[str]:
        if _plain(type_) not in ("int", "long"):
            raise _Unknown
        expected = zigzag(self._version[1])
        if len(expected) != 1:
            raise _Unknown
        yield f"if d[p] != {expected[0]}: raise ODD"
        yield "p += 1"

    def _value(self, type_: Any, target: str | None) -> Iterator[str]:
        """Code that steps over a value, and keeps it in `target` if there is one."""
        if isinstance(type_, list):
            yield from self._union(type_, target)
            return
        kind = _plain(type_)
        if isinstance(kind, dict):
            yield from self._nested(kind, target)
        elif kind in ("int", "long"):
            if target is None:
                yield "while d[p] > 127: p += 1"
                yield "p += 1"
            else:
                yield from _number()
                yield f"{target} = (b >> 1) ^ -(b & 1)"
        elif kind in ("bytes", "string"):
            yield from _number()
            yield "if b & 1: raise ODD"
            if target is None:
                yield "p += b >> 1"
            else:
                yield f"b = p + (b >> 1); {target} = d[p:b]{'.decode()' if kind == 'string' else ''}; p = b"
        elif kind in _FIXED and target is None:
            yield f"p += {_FIXED[kind]}"
        else:
            raise _Unknown

    def _nested(self, type_: Mapping[str, Any], target: str | None) -> Iterator[str]:
        match type_.get("type"):
            case "array":
                yield from self._array(type_["items"], target)
            case "record" if target is None and type_["fields"]:
                for one in type_["fields"]:
                    yield from self._value(one["type"], None)
            case _:
                raise _Unknown

    def _union(self, branches: Sequence[Any], target: str | None) -> Iterator[str]:
        """Of null and one other type."""
        others = [one for one in branches if one != "null"]
        if len(branches) != 2 or len(others) != 1:
            raise _Unknown
        null, other = (zigzag(branches.index(one))[0] for one in ("null", others[0]))
        yield "b = d[p]; p += 1"
        yield f"if b == {other}:"
        yield from _deeper(self._value(others[0], target), 1)
        yield f"elif b != {null}: raise ODD"
        if target is not None:
            yield f"else: {target} = None"

    def _array(self, items: Any, target: str | None) -> Iterator[str]:
        """Blocks of items until an empty one; a block of negative count has a size, too: that is unusual."""
        self._depth += 1
        count, item = f"n{self._depth}", f"i{self._depth}"
        if target is not None:
            yield f"{target} = []"
        yield from _number()
        yield f"{count} = b"
        yield f"while {count}:"
        yield f"    if {count} & 1: raise ODD"
        yield f"    for _ in range({count} >> 1):"
        yield from _deeper(self._value(items, None if target is None else item), 2)
        if target is not None:
            yield f"        {target}.append({item})"
        yield from _deeper(_number(), 1)
        yield f"    {count} = b"
        self._depth -= 1


def _number() -> Iterator[str]:
    """`b` becomes the next number, zig-zag still in it; one byte is the rule."""
    yield "b = d[p]; p += 1"
    yield "if b > 127:"
    yield "    b &= 127; s = 7"
    yield "    while True:"
    yield "        c = d[p]; p += 1"
    yield "        if c < 128: break"
    yield "        b |= (c & 127) << s; s += 7"
    yield "    b |= c << s"
    yield f"    if b >= {_LONG_LIMIT}: raise ODD"


def _plain(type_: Any) -> Any:
    """`{"type": "long", …}` is `long`."""
    if isinstance(type_, dict) and isinstance(type_.get("type"), str):
        return type_["type"] if type_["type"] not in ("record", "array") else type_
    return type_


def _deeper(lines: Any, levels: int) -> Iterator[str]:
    return (" " * 4 * levels + line for line in lines)
