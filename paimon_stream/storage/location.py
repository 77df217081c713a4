"""Locations in object stores and in HDFS as users write them, and the part of a location that may
be shown.
"""

import re
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import InvalidOption, PaimonStreamError, UnsupportedFeature

KIND_OF: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "oss": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfss": "azure",
    "abfs": "azure",
    "wasbs": "azure",
    "az": "azure",
}
"""The kind of store by scheme."""

HDFS_SCHEMES: Final = ("hdfs", "viewfs")
"""The schemes of folders in HDFS."""

SUPPORTED: Final = (
    "a local path, file:///path, hdfs://nameservice/path (viewfs), s3://bucket/path (s3a, s3n), gs://bucket/path (gcs), "
    "abfss://container@account.dfs.core.windows.net/path (abfs, wasbs), az://container/path "
    "or oss://bucket/path"
)

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUCKET: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,254}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_PORT: Final = re.compile(r"[^:]*(:[0-9]{1,5})?")
_AT_ACCOUNT: Final = ("abfss", "abfs", "wasbs")
_NAME_NODE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[0-9]{1,5})?)?")
_LAST_PORT: Final = 65535
_MOST_KEY: Final = 1024
"""Bytes of a key at S3 and Google, characters at Azure."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A folder in an object store.

    Attributes:
        kind: the kind of store: `s3`, `gcs` or `azure`.
        scheme: the location's scheme, in lower case.
        shown: the location without credentials.
        bucket: the bucket or container.
        prefix: the key of the folder in the bucket, never empty.
        host: the host of Azure, with the account as its first part; empty if the location has no
            host.
    """

    kind: str
    scheme: str
    shown: str
    bucket: str
    prefix: str
    host: str = ""

    @property
    def account(self) -> str:
        """The storage account of Azure; empty if the location does not name it."""
        return self.host.partition(".")[0]


@dataclass(frozen=True, slots=True)
class HdfsLocation:
    """A folder in HDFS.

    Attributes:
        scheme: `hdfs` or `viewfs`.
        shown: the location without a slash at its end.
        authority: the name service, the name node with its port, or the mount table; empty for that
            of Hadoop's `fs.defaultFS`.
        path: the folder's absolute path.
    """

    scheme: str
    shown: str
    authority: str
    path: str


def scheme_of(location: str) -> str:
    """The scheme of a location in lower case; empty for a plain path."""
    scheme = _SCHEME.match(location)
    return scheme[1].lower() if scheme else ""


def shown_location(location: str) -> str:
    """The location without its user, password, query and fragment."""
    scheme, colon, address = location.partition(":")
    if not _SCHEME.match(location):
        # This is a plain path, or a URI whose scheme was forgotten. Such a URI may have a login.
        return scheme + colon + re.sub(r"^//[^/@]*@", "//", address)
    address = re.split(r"[?#]", address, maxsplit=1)[0]
    if not address.startswith("//"):
        return scheme + colon + address
    host, slash, path = address[2:].partition("/")
    user, _, machine = host.rpartition("@")
    if scheme.lower() in _AT_ACCOUNT and ":" not in host:
        return scheme + colon + address  # before its @ is the container
    has_odd_port = not _PORT.fullmatch(machine)
    may_be_login = not user and "@" in path
    if ":" in machine and (has_odd_port or may_be_login):
        # The password has a '/', which seems to end the host. Only the part after the last '@' is
        # shown.
        return f"{scheme}{colon}//{path.rpartition('@')[2]}"
    return f"{scheme}{colon}//{machine}{slash}{path}"


def store_location(location: str) -> StoreLocation:
    """Parses a location in an object store. Its scheme is one of `KIND_OF`. Keys are not
    percent-decoded, and empty parts of a path are ignored, as in Java. Raises `InvalidOption`, and
    `UnsupportedFeature` for a bucket that cannot hold a table.
    """
    scheme = scheme_of(location)
    shown = shown_location(location)
    address = location.partition(":")[2]
    if not address.startswith("//"):
        raise _invalid(shown, f"A location of {scheme} has two slashes: {_example(scheme)}.")
    netloc, _, path = address[2:].partition("/")
    at_account = scheme in _AT_ACCOUNT and "@" in netloc
    bucket = netloc
    host = ""
    if at_account:
        bucket, _, host = netloc.partition("@")
    has_login = "@" in bucket or "@" in host
    has_port = ":" in netloc
    if has_login or has_port:
        raise _invalid(
            shown,
            "A location holds no user, password or port. "
            f"Give {_example(scheme)}, and credentials and the endpoint as storage options.",
        )
    if re.search("[?#]", address):
        raise _invalid(
            shown, "A location holds no query and no '#'. Give credentials as storage options."
        )
    if not _BUCKET.fullmatch(bucket) or (at_account and not _HOST.fullmatch(host)):
        raise _invalid(shown, f"It names no bucket or container. Give {_example(scheme)}.")
    if bucket.endswith("--x-s3"):
        raise UnsupportedFeature(
            f"{shown} is in a directory bucket of S3 Express, which lists its files in no order. "
            "Use another bucket.",
            location=shown,
        )
    parts = [part for part in path.split("/") if part]
    if not parts:
        raise _invalid(
            shown, f"It is a bucket alone, and a table needs a folder. Give {_example(scheme)}."
        )
    kind = KIND_OF[scheme]
    return StoreLocation(
        kind=kind,
        scheme=scheme,
        shown=shown.rstrip("/"),
        bucket=bucket,
        prefix=_checked_key(kind, parts, shown),
        host=host,
    )


def hdfs_location(location: str) -> HdfsLocation:
    """The parts of a location in HDFS, whose scheme is one of `HDFS_SCHEMES`. As in Java, nothing
    is percent-decoded, and empty parts of the path are ignored. Raises `InvalidOption`.
    """
    scheme = scheme_of(location)
    shown = shown_location(location).rstrip("/")
    address = location.partition(":")[2]
    example = f"{scheme}://nameservice/path"
    if not address.startswith("//"):
        raise _invalid(shown, f"A location of {scheme} has two slashes: {example}.")
    authority, _, path = address[2:].partition("/")
    if "@" in authority:
        raise _invalid(
            shown,
            f"A location holds no user. Set HADOOP_USER_NAME, or use Kerberos. Give {example}.",
        )
    if re.search("[?#]", address):
        raise _invalid(shown, "A location holds no query and no '#'. Rename the folder.")
    if not _NAME_NODE.fullmatch(authority):
        raise _invalid(shown, f"It names no name service and no name node. Give {example}.")
    port = authority.partition(":")[2]
    if port and not 0 < int(port) <= _LAST_PORT:
        raise _invalid(shown, f"A port is a number from 1 to {_LAST_PORT}. Give {example}.")
    parts = [part for part in path.split("/") if part]
    if not parts:
        raise _invalid(shown, f"It has no path, and a table needs a folder. Give {example}.")
    if any(part in (".", "..") or ":" in part for part in parts):
        raise _invalid(
            shown,
            "A name in HDFS has no colon, and is not '.' or '..'. Give the path in full, or "
            "rename the folder.",
        )
    if not path.isprintable():
        raise _invalid(
            repr(shown), "Its path holds characters that cannot be printed. Rename the folder."
        )
    return HdfsLocation(scheme, shown, authority, f"/{'/'.join(parts)}")


def _checked_key(kind: str, parts: list[str], shown: str) -> str:
    """The key that consists of the given parts. Raises `InvalidOption` if it cannot be the folder
    of a table.
    """
    key = "/".join(parts)
    if kind == "azure" and "\\" in key:
        raise _invalid(
            shown,
            "Azure takes a backslash for a slash. Give it with slashes, or rename the folder.",
        )
    if any(part in (".", "..") for part in parts):
        raise _invalid(shown, "A key has no '.' or '..' between slashes. Give the path in full.")
    if not key.isprintable():
        raise _invalid(
            repr(shown), "Its path holds characters that cannot be printed. Rename the folder."
        )
    size = len(key.encode())
    if size > _MOST_KEY:
        raise _invalid(
            shown,
            f"Its path has {size:,} bytes, and a store's key has at most {_MOST_KEY:,}. "
            "Use a shorter one.",
        )
    return key


def _example(scheme: str) -> str:
    if scheme in _AT_ACCOUNT:
        return f"{scheme}://container@account.dfs.core.windows.net/path"
    return "az://container/path" if scheme == "az" else f"{scheme}://bucket/path"


def _invalid(shown: str, problem: str) -> PaimonStreamError:
    return InvalidOption(f"The location is {shown}. {problem}", location=shown)
