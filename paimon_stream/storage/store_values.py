"""The values of a store's options, gathered from all sources. No message and no `repr` contains a
value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.options import boolean, did_you_mean
from paimon_stream.options.store_names import (
    KnownName,
    is_of_another,
    recommended_names,
    refusal_of,
    store_option,
)
from paimon_stream.options.store_options import STORE_OPTIONS
from paimon_stream.storage.location import StoreLocation

CALL: Final = "storage_options"
"""The source of which every option must be known."""
ENVIRONMENT: Final = "the environment"

_NO_LOGIN: Final = {"credentials_provider", "auth_type", "oauth_provider"}
"""Hadoop's words for a kind of login, which are no credentials themselves."""


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """A source of options.

    Attributes:
        name: the source, for messages.
        options: the options of the source.
    """

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class _StoreSetting:
    """The value of an option in a source.

    Attributes:
        value: the value.
        name: the name of the option in the source.
        source: the name of the source.
        rank: the rank of that name. If a source has an option under several names, the name with
            the lowest rank counts.
    """

    value: str
    name: str
    source: str
    rank: int


@dataclass(frozen=True, slots=True, repr=False)
class StoreValues:
    """The values of a store's options that are set.

    Attributes:
        shown: the location, for messages.
    """

    shown: str
    _settings: Mapping[str, _StoreSetting]
    """By the key of their `StoreOption`."""

    def text(self, key: str) -> str | None:
        """The value of an option; None if it is not set."""
        setting = self._settings.get(key)
        return None if setting is None else setting.value

    def switch(self, key: str) -> bool | None:
        """The value of a switch; None if it is not set."""
        setting = self._settings.get(key)
        return None if setting is None else boolean(setting.value)

    def of(self, *keys: str) -> dict[str, str]:
        """The values of the given keys that are set, by key."""
        return {key: self._settings[key].value for key in keys if key in self._settings}

    def has(self, key: str) -> bool:
        """Whether an option is set."""
        return key in self._settings

    def from_environment(self, key: str) -> bool:
        """Whether the value of an option that is set comes from the environment."""
        return self._settings[key].source == ENVIRONMENT

    def wrong(self, key: str, problem: str) -> InvalidOption:
        """The error for a value that cannot be used. It does not show the value. `problem` ends the
        sentence that begins with the name of the option.
        """
        setting = self._settings[key]
        return InvalidOption(
            f"{self.shown}: {setting.name!r} of {setting.source} {problem}",
            option=setting.name,
            location=self.shown,
        )

    def unsupported(self, key: str, problem: str) -> UnsupportedFeature:
        """The error for a value that asks for something that is not supported. It does not show the
        value.
        """
        wrong = self.wrong(key, problem)
        return UnsupportedFeature(wrong.message, **wrong.context)


def gathered(place: StoreLocation, sources: Iterable[Source]) -> StoreValues:
    """The value of each option from the first source that has one. All values of a login come from
    the first source that has a part of a login. An empty value counts as none. Raises
    `InvalidOption` if the call's own options have a name that no store of this kind knows. Raises
    `UnsupportedFeature` for an option that is known and not supported.
    """
    settings_of_sources = [_read(place, source) for source in sources]
    login_keys = {option.key for option in STORE_OPTIONS[place.kind] if option.login}
    with_login = [settings for settings in settings_of_sources if _has_login(settings, login_keys)]
    first: dict[str, _StoreSetting] = {}
    for settings in settings_of_sources:
        may_have_login = not with_login or settings is with_login[0]
        for key, setting in settings.items():
            if may_have_login or key not in login_keys:
                first.setdefault(key, setting)
    return StoreValues(place.shown, first)


def _has_login(settings: Mapping[str, _StoreSetting], login_keys: set[str]) -> bool:
    """Whether a source has a part of a login other than the word for its kind."""
    return any(key in settings and settings[key].value != "false" for key in login_keys - _NO_LOGIN)


def _read(place: StoreLocation, source: Source) -> dict[str, _StoreSetting]:
    """The settings in a source, by the key of the option. If the source has an option under several
    names, the name with the lowest rank counts.
    """
    settings: dict[str, _StoreSetting] = {}
    owners = owners_of(place)
    for name, value in source.options.items():
        known = store_option(place.kind, name, owners)
        if known is None:
            _refuse(place, source, name, value, refusal_of(place.kind, name, owners))
        elif value.strip():
            parsed = _parsed(known, value, name, place)
            setting = _StoreSetting(parsed, name, source.name, known.rank)
            key = known.option.key
            if key not in settings or setting.rank < settings[key].rank:
                settings[key] = setting
    return settings


def owners_of(place: StoreLocation) -> tuple[str, ...]:
    """The texts with which the names of Hadoop's options may end: the bucket, or the hosts of
    Azure. Hosts with the container come first.
    """
    if place.kind != "azure":
        return (place.bucket,)
    if not place.account:
        return ()
    domain = place.host.partition(".")[2] or "dfs.core.windows.net"
    domain = domain.removeprefix("dfs.").removeprefix("blob.")
    hosts = [f"{place.account}.{service}.{domain}" for service in ("dfs", "blob")]
    return (*(f"{place.bucket}.{host}" for host in hosts), *hosts, place.account)


def _parsed(known: KnownName, value: str, name: str, place: StoreLocation) -> str:
    """The value of an option as text. Raises `InvalidOption` for a switch that is neither true nor
    false.
    """
    if not known.option.switch:
        return value.strip()
    word = value.strip().lower()
    word = {"1": "true", "0": "false"}.get(word, word)
    if word not in ("true", "false"):
        raise InvalidOption(
            f"{place.shown}: storage option {name!r} is neither true nor false.",
            option=name,
            location=place.shown,
        )
    if known.inverse:
        return "false" if word == "true" else "true"
    return word


def _refuse(
    place: StoreLocation, source: Source, name: str, value: str, refusal: str | None
) -> None:
    """Refuses a name that is not an option. `refusal` says what to do instead, if the name is known
    to ask for something that is not supported. In Spark's configuration, only names with a
    `refusal` are refused, because other names may be meant for Spark itself.
    """
    if refusal is not None and value.strip().lower() not in ("", "false"):
        alternative = ""
        if source.name != CALL:
            alternative = " Or set paimon-stream.store.from-spark to false."
        raise UnsupportedFeature(
            f"{place.shown}: {name!r} of {source.name} is not supported. {refusal}.{alternative}",
            option=name,
            location=place.shown,
        )
    if source.name != CALL:
        return
    if is_of_another(place.kind, name):
        advice = "It is for another bucket, account or container than the location's."
    elif _is_of_another_kind(place.kind, name):
        advice = "It is for another kind of store."
    else:
        advice = did_you_mean(name, recommended_names(place.kind))
    raise InvalidOption(
        f"Unknown storage option for {place.shown}: {name!r}. {advice}".rstrip(),
        location=place.shown,
        options=(name,),
    )


def _is_of_another_kind(kind: str, name: str) -> bool:
    """Whether another kind of store has an option with this name. The name includes a prefix."""
    others = [other for other in STORE_OPTIONS if other != kind]
    return "." in name and any(store_option(other, name) is not None for other in others)
