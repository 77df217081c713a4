"""Finds the storage option that a name means, and whether it is secret. A name is looked up by its
folded form: in lower case, with `.` for `-` and `_`, and without the prefix of its store. So the
names `s3.access-key`, `s3a.access.key`, `fs.s3a.access.key` and `AWS_ACCESS_KEY` are the same name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from paimon_stream.options.store_options import PREFIXES, REFUSED, STORE_OPTIONS, StoreOption

_SECRET: Final = re.compile(r"secret|password|private\.key|token$")


def folded_name(kind: str, name: str) -> str:
    """The form in which a name is looked up."""
    folded = _folded(name)
    return folded.removeprefix(next(filter(folded.startswith, PREFIXES[kind]), ""))


def _folded(name: str) -> str:
    return re.sub(r"[-_]", ".", name.strip().lower())


def _spellings(kind: str, option: StoreOption) -> tuple[str, ...]:
    every = (*option.names, *option.inverse, option.key, *option.environment)
    return tuple(dict.fromkeys(folded_name(kind, name) for name in every))


_BY_NAME: Final[Mapping[str, Mapping[str, StoreOption]]] = {
    kind: {name: option for option in options for name in _spellings(kind, option)}
    for kind, options in STORE_OPTIONS.items()
}


@dataclass(frozen=True, slots=True)
class KnownName:
    """What a name means.

    Attributes:
        option: the option.
        rank: if a source gives an option under several names, the name with the lowest rank is
            used.
        inverse: whether the name means the opposite of the option.
    """

    option: StoreOption
    rank: int
    inverse: bool


def store_option(kind: str, name: str, owners: Iterable[str] = ()) -> KnownName | None:
    """The option that a name means, or None.

    Args:
        kind: the kind of store.
        name: the name.
        owners: the bucket, or the hosts of the account and its container. Names of Hadoop may begin
            with a bucket, or end with a host. Names with other owners have no meaning in this
            location.
    """
    folded = folded_name(kind, name)
    unowned = _without_owner(kind, folded, owners)
    option = _BY_NAME[kind].get(unowned)
    if option is None:
        return None
    inverse = any(folded_name(kind, opposite) == unowned for opposite in option.inverse)
    rank = -1 if unowned != folded else _spellings(kind, option).index(unowned)
    return KnownName(option, rank, inverse)


def refusal_of(kind: str, name: str, owners: Iterable[str] = ()) -> str | None:
    """For a name that is refused, what the user should do instead; None for any other name.
    `owners` are as in `store_option`.
    """
    unowned = _without_owner(kind, folded_name(kind, name), owners)
    return REFUSED[kind].get(unowned)


def _without_owner(kind: str, folded: str, owners: Iterable[str]) -> str:
    for owner in map(_folded, owners):
        if kind == "s3":
            unowned = folded.removeprefix(f"bucket.{owner}.")
        else:
            unowned = folded.removesuffix(f".{owner}")
        if unowned != folded:
            return unowned
    return folded


def is_of_another(kind: str, name: str) -> bool:
    """Whether a name has the form that Hadoop uses for an option of one bucket or account. The
    caller has found that the name is not for the bucket or account of the location.
    """
    folded = folded_name(kind, name)
    if kind == "s3":
        return folded.startswith("bucket.")
    names_with_dots = [known for known in _BY_NAME[kind] if "." in known]
    return any(folded.startswith(f"{known}.") for known in names_with_dots)


@lru_cache(1024)
def is_secret(name: str) -> bool:
    """Whether a name in a table's options is the name of a secret of some store."""
    folded = _folded(name)
    for kind, prefixes in PREFIXES.items():
        without_prefix = folded_name(kind, name)
        is_secret_here = _SECRET.search(without_prefix) or _is_declared_secret(kind, without_prefix)
        if folded.startswith(prefixes) and is_secret_here:
            return True
    return False


def _is_declared_secret(kind: str, folded: str) -> bool:
    """Whether a folded name is the name of a secret option. An owner may stand before or after the
    name.
    """
    return any(
        folded == known or folded.startswith(f"{known}.") or folded.endswith(f".{known}")
        for known, option in _BY_NAME[kind].items()
        if option.secret
    )


def recommended_names(kind: str) -> list[str]:
    """The first name of each option, for suggestions."""
    return [name for option in STORE_OPTIONS[kind] for name in (*option.names, *option.inverse)]
