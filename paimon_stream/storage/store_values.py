"""The values of a store's options, gathered from all sources. No message and no `repr` holds a
value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.options import boolean, did_you_mean
from paimon_stream.options.store_names import (
    is_of_another,
    recommended_names,
    refusal_of,
    store_option,
)
from paimon_stream.options.store_options import STORE_OPTIONS, StoreOption
from paimon_stream.storage.location import StoreLocation

CALL: Final = "storage_options"
"""The source of which every option must be known."""
ENVIRONMENT: Final = "the environment"

_NO_LOGIN: Final = {"credentials_provider", "auth_type", "oauth_provider"}
"""Hadoop's words for a kind of login, which are no credentials themselves."""


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """Where options come from, and what is there."""

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class _Given:
    """One value, the name that it was given under, and its source."""

    value: str
    name: str
    source: str
    rank: int


@dataclass(frozen=True, slots=True, repr=False)
class StoreValues:
    """The values by the key of their `StoreOption`. `shown` is the location, for messages."""

    shown: str
    _given: Mapping[str, _Given]

    def text(self, key: str) -> str | None:
        """The value; None if it is not given."""
        return self._given[key].value if key in self._given else None

    def switch(self, key: str) -> bool | None:
        """The value of a switch; None if it is not given."""
        return None if key not in self._given else boolean(self._given[key].value)

    def of(self, *keys: str) -> dict[str, str]:
        """Those of the keys that are given, with their values."""
        return {key: self._given[key].value for key in keys if key in self._given}

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return key in self._given

    def from_environment(self, key: str) -> bool:
        """Whether a given value is the environment's."""
        return self._given[key].source == ENVIRONMENT

    def wrong(self, key: str, why: str) -> InvalidOption:
        """The error for a value that cannot be used, which does not show it."""
        one = self._given[key]
        return InvalidOption(
            f"{self.shown}: {one.name!r} of {one.source} {why}",
            option=one.name,
            location=self.shown,
        )

    def unsupported(self, key: str, why: str) -> UnsupportedFeature:
        """The error for a value that asks for something that is not supported. It does not show the
        value.
        """
        wrong = self.wrong(key, why)
        return UnsupportedFeature(wrong.message, **wrong.context)


def gathered(place: StoreLocation, sources: Iterable[Source]) -> StoreValues:
    """The first value of each option, in the order of the sources; those of a login come from the
    first source that has any. An empty value counts as none. Raises `InvalidOption` for a name in
    the call's own options that no store of this kind knows, and `UnsupportedFeature` for one that
    asks for what is not supported.
    """
    found = [_read(place, source) for source in sources]
    parts = {one.key for one in STORE_OPTIONS[place.kind] if one.login}
    logins = (
        given
        for given in found
        if any(
            key in given and key not in _NO_LOGIN and given[key].value != "false" for key in parts
        )
    )
    login = next(logins, None)
    merged: dict[str, _Given] = {}
    for given in found:
        for key, one in given.items():
            if key not in parts or login is None or given is login:
                merged.setdefault(key, one)
    return StoreValues(place.shown, merged)


def _read(place: StoreLocation, source: Source) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    owners = owners_of(place)
    for name, value in source.options.items():
        known = store_option(place.kind, name, owners)
        if known is None:
            _refuse(place, source, name, value, refusal_of(place.kind, name, owners))
        elif value.strip():
            one = _Given(
                _parsed(known.option, value, known.inverse, name, place),
                name,
                source.name,
                known.rank,
            )
            key = known.option.key
            if key not in found or one.rank < found[key].rank:
                found[key] = one
    return found


def owners_of(place: StoreLocation) -> tuple[str, ...]:
    """The bucket, or the hosts that Hadoop's names of options may end with: that of the container
    first.
    """
    if place.kind != "azure":
        return (place.bucket,)
    if not place.account:
        return ()
    domain = place.host.partition(".")[2] or "dfs.core.windows.net"
    domain = domain.removeprefix("dfs.").removeprefix("blob.")
    hosts = [f"{place.account}.{service}.{domain}" for service in ("dfs", "blob")]
    return (*(f"{place.bucket}.{host}" for host in hosts), *hosts, place.account)


def _parsed(option: StoreOption, value: str, inverse: bool, name: str, place: StoreLocation) -> str:
    if not option.switch:
        return value.strip()
    word = value.strip().lower()
    word = {"1": "true", "0": "false"}.get(word, word)
    if word not in ("true", "false"):
        text = f"{place.shown}: storage option {name!r} is neither true nor false."
        raise InvalidOption(text, option=name, location=place.shown)
    return ("false" if word == "true" else "true") if inverse else word


def _refuse(place: StoreLocation, source: Source, name: str, value: str, why: str | None) -> None:
    """Refuses a name that is not an option. In Spark's configuration, only those are refused that
    are known to ask for something, for which there is a `why`; the others are Spark's own affair.
    """
    if why is not None and value.strip().lower() not in ("", "false"):
        off = "" if source.name == CALL else " Or set paimon-stream.store.from-spark to false."
        text = f"{place.shown}: {name!r} of {source.name} is not supported. {why}.{off}"
        raise UnsupportedFeature(text, option=name, location=place.shown)
    if source.name != CALL:
        return
    if is_of_another(place.kind, name):
        why = "It is for another bucket, account or container than the location's."
    elif any(
        store_option(kind, name) for kind in STORE_OPTIONS if kind != place.kind and "." in name
    ):
        why = "It is for another kind of store."
    else:
        why = did_you_mean(name, recommended_names(place.kind))
    text = f"Unknown storage option for {place.shown}: {name!r}. {why}"
    raise InvalidOption(text.rstrip(), location=place.shown, options=(name,))
