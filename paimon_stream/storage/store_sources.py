"""Gathers the settings of a store. They come from three sources, in this order: the storage
options, Spark's configuration, and the environment. Each option has its value from the first source
that has one. Credentials are taken from the first source that has any. No message contains a value.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption
from paimon_stream.extras import require
from paimon_stream.options.store_names import folded_name, store_option
from paimon_stream.options.store_options import STORE_OPTIONS
from paimon_stream.storage.location import StoreLocation, shown_location
from paimon_stream.storage.store_open import StoreSettings
from paimon_stream.storage.store_rules import StoreSetup, apply_rules
from paimon_stream.storage.store_values import CALL, ENVIRONMENT, Source, gathered, owners_of

_LOG = logging.getLogger(__name__)

_OURS: Final = opt.store_options()
_OUR_NAMES: Final = {option.key: option for option in _OURS}
_SHORT: Final = {option.key.rpartition(".")[2].replace("-", "."): option for option in _OURS}
"""This package's options by their names in delta-rs, folded, such as `connect.timeout`."""


SparkOptions: TypeAlias = Callable[[], Mapping[str, str]]
"""Reads Spark's Hadoop configuration, if there is a session."""


def settings_of(
    place: StoreLocation,
    options: Mapping[str, str],
    *,
    spark: SparkOptions | None = None,
    environment: Mapping[str, str] | None = None,
) -> StoreSettings:
    """The settings of the store that holds a table.

    Args:
        place: the table's location.
        options: the storage options of the table. Each of them must be known.
        spark: reads Spark's Hadoop configuration. Only known names in it count. The option
            `paimon-stream.store.from-spark` may exclude it.
        environment: the environment variables. None: those of the process.

    Raises:
        InvalidOption: options are unknown, malformed or contradict each other.
        UnsupportedFeature: options ask for something that is not supported.
        MissingExtra: options need boto3, which is not installed.
    """
    environment = os.environ if environment is None else environment
    ours, theirs = _divided(place, options)
    sources = [Source(CALL, theirs)]
    if spark is not None and ours.value(opt.STORE_FROM_SPARK):
        sources.append(Source("Spark's configuration", spark()))
    sources.append(Source(ENVIRONMENT, _variables(place.kind, environment)))
    place = _with_account(place, sources)
    setup = _setup(place, sources, environment, allow_http=ours.value(opt.STORE_ALLOW_HTTP))
    if setup.profile is not None:
        require("boto3", "aws", f"AWS profile {setup.profile!r} for {place.shown}")
    elif setup.role:
        require("boto3", "aws", f"The assumed role for {place.shown}")
    timeouts = {
        "timeout": f"{ours.value(opt.STORE_TIMEOUT)}ms",
        "connect_timeout": f"{ours.value(opt.STORE_CONNECT_TIMEOUT)}ms",
    }
    return StoreSettings(
        kind=place.kind,
        location=place.shown,
        bucket=place.bucket,
        prefix=place.prefix,
        config=setup.config,
        client={**timeouts, **setup.client},
        profile=setup.profile,
        max_retries=ours.value(opt.STORE_MAX_RETRIES),
        max_outage_millis=ours.value(opt.STORE_MAX_OUTAGE),
        role=setup.role,
    )


def _setup(
    place: StoreLocation,
    sources: Sequence[Source],
    environment: Mapping[str, str],
    *,
    allow_http: bool,
) -> StoreSetup:
    """The setup that the sources ask for. If no source has a login, the default profile of AWS is
    used, if it exists. Raises what `settings_of` raises.
    """
    values = gathered(place, sources)
    web_identity = "AWS_WEB_IDENTITY_TOKEN_FILE" in environment
    setup = apply_rules(place, values, allow_http=allow_http, web_identity=web_identity)
    if place.kind == "s3" and not setup.login and _has_default_profile(environment):
        setup.profile = "default"
    if "root_certificate" in setup.client and values.from_environment("root_certificate"):
        _drop_unknown_certificate(place, setup)
    return setup


def _variables(kind: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that are options of a kind of store. obstore itself reads other
    variables, such as the files of a pod, in each process.
    """
    names = [name for option in STORE_OPTIONS[kind] for name in option.environment]
    return {name: environment[name] for name in names if name in environment}


def _drop_unknown_certificate(place: StoreLocation, setup: StoreSetup) -> None:
    """Drops the certificate that a variable names if the installed obstore has no option for it."""
    if _is_old():
        del setup.client["root_certificate"]
        _LOG.warning(
            "%s: obstore before 0.11 does not read AWS_CA_BUNDLE. Set SSL_CERT_FILE.", place.shown
        )


def options_for(place: StoreLocation, options: Mapping[str, str]) -> dict[str, str]:
    """The storage options of another location that also apply to this one."""
    call = Source(CALL, options)
    place = _with_account(place, [call])
    return {
        name: value
        for name, value in options.items()
        if name.lower() in _OUR_NAMES
        or folded_name(place.kind, name) in _SHORT
        or store_option(place.kind, name, owners_of(place))
    }


def store_of(place: StoreLocation, options: Mapping[str, str]) -> tuple[str, ...]:
    """The values that distinguish the store of a location from other stores: its kind, account and
    endpoint, as far as the location and the storage options of its catalog name them. No part is a
    credential.
    """
    _, theirs = _divided(place, options_for(place, options))
    call = Source(CALL, theirs)
    place = _with_account(place, [call])
    endpoints = gathered(place, [call]).of("endpoint", "base_url").values()
    # An endpoint with a login is refused when the store is opened. At this point the login is only
    # cut off.
    shown = [shown_location(endpoint).rpartition("@")[2].rstrip("/") for endpoint in endpoints]
    kind = "oss" if place.scheme == "oss" else place.kind
    return kind, place.account, *shown


def _divided(
    place: StoreLocation, options: Mapping[str, str]
) -> tuple[opt.Options, dict[str, str]]:
    """The options that belong to this package, and those that belong to the store."""
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for name, value in options.items():
        short = _SHORT.get(folded_name(place.kind, name))
        if name.lower() in _OUR_NAMES:
            ours[name.lower()] = value
        elif name.lower().startswith(opt.SINK_PREFIX):
            raise InvalidOption(
                f"{place.shown}: {name!r} is not an option of object stores. "
                f"{opt.did_you_mean(name, _OUR_NAMES)}",
                location=place.shown,
                options=(name,),
            )
        elif short is not None:  # if the full name is there, too, it counts
            ours.setdefault(short.key, value)
        elif isinstance(value, bool):
            theirs[name] = str(value).lower()
        else:
            theirs[name] = str(value)
    return opt.Options(ours, location=place.shown), theirs


def _with_account(place: StoreLocation, sources: list[Source]) -> StoreLocation:
    """The location with the account that the options name. The names of Hadoop's options contain
    the account at their end.
    """
    if place.kind != "azure" or place.account:
        return place
    for source in sources:
        for name, value in source.options.items():
            known = store_option("azure", name)
            if known is not None and known.option.key == "account_name" and value:
                return replace(place, host=value)
    return place


def _has_default_profile(environment: Mapping[str, str]) -> bool:
    """Whether AWS's own order of sources would choose the default profile."""
    if any(
        name.startswith(("AWS_WEB_IDENTITY_", "AWS_CONTAINER_CREDENTIALS_")) for name in environment
    ):
        return False
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE")
    home = environment.get("HOME")
    if file is not None:
        path = Path(file)
    elif home is not None:
        path = Path(home, ".aws", "credentials")
    else:
        return False
    import configparser  # only here, because each worker of Spark imports this module

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, ValueError, configparser.Error):
        return False
    return parser.has_section("default")


def _is_old() -> bool:
    """Whether the installed obstore is older than 0.11. Such a release has no option for a
    certificate. The newest release for Python 3.10 is such a release.
    """
    from importlib import metadata  # only here, for the same reason

    try:
        numbers = metadata.version("obstore").split(".")[:2]
        return [int(number) for number in numbers] < [0, 11]
    except (metadata.PackageNotFoundError, ValueError):
        return False
