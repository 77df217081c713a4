"""The settings of HDFS. They come from three sources, in this order: the storage options, Spark's
Hadoop configuration, and the files of Hadoop's configuration on this machine. Each name has its
value from the first source that has one. No message holds a value.

The driver gathers the settings, and they travel to the executors, which need no files of Hadoop.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption
from paimon_stream.options.hdfs_names import HADOOP_NAMES, hadoop_name
from paimon_stream.storage.client_settings import ClientSettings
from paimon_stream.storage.location import HdfsLocation, hdfs_location, scheme_of, shown_location
from paimon_stream.storage.store_sources import SparkOptions

_FILES: Final = ("core-site.xml", "hdfs-site.xml")
_DEFAULT_FS: Final = "fs.defaultFS"
_VARIABLE: Final = re.compile(r"\$\{([^}$]+)\}")
_EXPANSIONS: Final = 20
"""How often Hadoop replaces variables in one value, at most."""
_OURS: Final = {
    option.key: option
    for option in (
        opt.STORE_TIMEOUT,
        opt.STORE_CONNECT_TIMEOUT,
        opt.STORE_MAX_OUTAGE,
        opt.STORE_FROM_SPARK,
    )
}
_LOGIN: Final = {
    "security.kerberos.login.principal": "kerberos_principal",
    "security.kerberos.login.keytab": "kerberos_keytab",
}
"""hdfs-native's arguments by Java Paimon's options."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HdfsSettings(ClientSettings):
    """The settings of one file system, with everything that an executor needs to open it. The
    `prefix` is the absolute path of the table's folder.

    Attributes:
        url: the file system, such as `hdfs://nameservice1`.
        config: Hadoop's configuration, as far as hdfs-native reads it.
        login: hdfs-native's arguments for Kerberos, if the options name a principal.
        timeout_millis: how long a call may take.
        connect_timeout_millis: how long a call may take while nothing has answered yet.
    """

    url: str
    config: Mapping[str, str] = field(hash=False)
    login: Mapping[str, str] = field(default_factory=dict, hash=False)
    timeout_millis: int
    connect_timeout_millis: int


def hdfs_settings_of(
    place: HdfsLocation,
    options: Mapping[str, str],
    *,
    spark: SparkOptions | None = None,
    environment: Mapping[str, str] | None = None,
) -> HdfsSettings:
    """The settings of the file system that holds a table.

    Args:
        place: the table's location.
        options: the storage options of the table. Each of them must be known.
        spark: reads Spark's Hadoop configuration, of which the known names count. The option
            `paimon-stream.store.from-spark` may exclude it.
        environment: the variables; None for those of the process.

    Raises:
        InvalidOption: options are unknown or malformed, a file of Hadoop's configuration cannot be
            read, or nothing says which file system is meant.
    """
    environment = os.environ if environment is None else environment
    ours = opt.Options(
        {name.lower(): value for name, value in options.items() if name.lower() in _OURS},
        location=place.shown,
    )
    config = _of_files(place.shown, environment)
    if spark is not None and ours.value(opt.STORE_FROM_SPARK):
        config |= {name: value for name, value in spark().items() if hadoop_name(name)}
    login: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() in _OURS:
            continue
        if name in _LOGIN:
            login[_LOGIN[name]] = str(value)
            continue
        known = hadoop_name(name)
        if known is None:
            raise _unknown(place, name)
        config[known] = str(value).lower() if isinstance(value, bool) else str(value)
    url, path = _file_system(place, config)
    return HdfsSettings(
        kind="hdfs",
        location=place.shown,
        url=url,
        prefix=path,
        config=config,
        login=login,
        timeout_millis=ours.value(opt.STORE_TIMEOUT),
        connect_timeout_millis=ours.value(opt.STORE_CONNECT_TIMEOUT),
        max_outage_millis=ours.value(opt.STORE_MAX_OUTAGE),
    )


def moved_settings(settings: HdfsSettings, place: HdfsLocation) -> HdfsSettings:
    """The settings of another folder that are otherwise those of a table. Raises
    `InvalidOption`.
    """
    url, path = _file_system(place, settings.config)
    return replace(settings, location=place.shown, url=url, prefix=path)


def default_file_system(
    path: str,
    options: Mapping[str, str],
    *,
    spark: SparkOptions | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The value of `fs.defaultFS`, against which Spark resolves a path without a scheme; "" if
    nothing sets it, so that such a path is local.

    Args:
        path: the path, for messages.
        options: storage options. They count only without `spark`, because Spark does not see them.
        spark: reads Spark's Hadoop configuration; None if no session is known. Then the files of
            Hadoop's configuration count, too.
        environment: the variables; None for those of the process.

    Raises:
        InvalidOption: a file of Hadoop's configuration cannot be read.
    """
    config = options if spark is None else spark()
    set_here = [value for name, value in config.items() if hadoop_name(name) == _DEFAULT_FS]
    if set_here or spark is not None:
        return set_here[0] if set_here else ""
    environment = os.environ if environment is None else environment
    return _of_files(path, environment).get(_DEFAULT_FS, "")


def hdfs_options_for(options: Mapping[str, str]) -> dict[str, str]:
    """Those options of a catalog or a reader that are storage options of HDFS."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() in _OURS or name in _LOGIN or hadoop_name(name)
    }


def _unknown(place: HdfsLocation, name: str) -> InvalidOption:
    hint = opt.did_you_mean(name, [*_OURS, *_LOGIN, *HADOOP_NAMES])
    return InvalidOption(
        f"{place.shown}: {name!r} is not an option of HDFS that has an effect here. {hint}".rstrip(),
        location=place.shown,
        options=(name,),
    )


def _file_system(place: HdfsLocation, config: Mapping[str, str]) -> tuple[str, str]:
    """The file system of a location, such as `hdfs://nameservice1`, and the folder's path in it. A
    mount table is looked up here, because hdfs-native needs one with a fallback. Raises
    `InvalidOption`.
    """
    authority = place.authority
    if not authority:
        default = re.fullmatch(rf"{place.scheme}://([^/@]+)/?", config.get(_DEFAULT_FS, ""))
        if default is None:
            raise InvalidOption(
                f"{place.shown} names no name service, and {_DEFAULT_FS} of Hadoop's configuration "
                f"names none of {place.scheme}. Give {place.scheme}://nameservice/path, or set "
                "HADOOP_CONF_DIR.",
                location=place.shown,
            )
        authority = default[1]
    if place.scheme == "hdfs":
        return f"hdfs://{authority}", place.path
    return _mounted(place, authority, config)


def _mounted(place: HdfsLocation, table: str, config: Mapping[str, str]) -> tuple[str, str]:
    """The file system and the path behind a path of a mount table. Raises `InvalidOption`."""
    start = f"fs.viewfs.mounttable.{table}.link"
    links = {f"{start}.{path}": path for path in _parents(place.path)}
    mounts = [(links[name], config[name]) for name in links if name in config]
    fallback = config.get(f"{start}Fallback")
    if not mounts and fallback:
        mounts = [("", fallback)]
    if not mounts:
        raise InvalidOption(
            f"{place.shown} is in no mount of {table!r}: Hadoop's configuration has no "
            f"{start}.<path> for it. Set HADOOP_CONF_DIR, or give hdfs://nameservice/path.",
            location=place.shown,
        )
    mount, target = mounts[0]
    if scheme_of(target) != "hdfs":
        raise InvalidOption(
            f"{place.shown} is mounted from {shown_location(target)}, which is not in HDFS. "
            "Give that location.",
            location=place.shown,
        )
    behind = hdfs_location(f"{target.rstrip('/')}{place.path[len(mount) :]}")
    return f"hdfs://{behind.authority}", behind.path


def _parents(path: str) -> list[str]:
    """The path and the folders above it, nearest first, without the root."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _of_files(shown: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What the files of Hadoop's configuration say, with their variables replaced."""
    folder = environment.get("HADOOP_CONF_DIR", "")
    if not folder and environment.get("HADOOP_HOME"):
        folder = f"{environment['HADOOP_HOME']}/etc/hadoop"
    values: dict[str, str] = {}
    for name in _FILES if folder else ():
        values |= _of_file(shown, Path(folder, name))
    return {
        name: _expanded(value, values)
        for name, value in values.items()
        if hadoop_name(name) == name
    }


def _of_file(shown: str, file: Path) -> dict[str, str]:
    # Only here, because each worker of Spark imports this module, and the driver reads the files.
    import xml.etree.ElementTree as ElementTree

    try:
        root = ElementTree.fromstring(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ElementTree.ParseError) as unreadable:
        raise InvalidOption(
            f"{shown}: {file} of Hadoop's configuration cannot be read "
            f"({type(unreadable).__name__}). Mend it, or set HADOOP_CONF_DIR to another folder.",
            location=shown,
        ) from None
    pairs = (
        (entry.findtext("name", "").strip(), entry.findtext("value", "").strip())
        for entry in root.iter("property")
    )
    return {name: value for name, value in pairs if name and value}


def _expanded(value: str, values: Mapping[str, str]) -> str:
    """The value with the variables that the configuration itself has."""
    for _ in range(_EXPANSIONS):
        variable = _VARIABLE.search(value)
        if variable is None or variable[1] not in values:
            return value
        value = value[: variable.start()] + values[variable[1]] + value[variable.end() :]
    return value
