"""Where the files of a table are, relative to its root (format.md §1). This package adds the folder
`_paimon_stream` to Paimon's layout, with one folder per commit user. Java and its orphan cleaning
ignore names that begin with `_`. New data files may go into folders outside the table
(table-kinds.md §3).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from paimon_stream import options as opt
from paimon_stream.errors import CorruptMetadata, InvalidOption, NotFound
from paimon_stream.format import names
from paimon_stream.format.binary_row import deserialize_partition
from paimon_stream.format.entries import EMPTY_ROW, IndexFileMeta, ManifestEntry
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.format.partition_path import partition_path
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataType
from paimon_stream.storage.base import Storage, checked_path
from paimon_stream.storage.external import shown_root, split_root
from paimon_stream.storage.location import scheme_of


@dataclass(frozen=True, slots=True)
class ExternalPaths:
    """The external paths of a table: folders outside the table in which data files are.

    Attributes:
        turns: the paths that new files take in turn, in the form in which `_EXTERNAL_PATH` begins.
            Each path is listed as often as its weight says. If empty, new files lie in the table.
        has_entropy: whether a path gets folders whose names are bits of a hash of the file's name.
        earlier: finds the external paths that any schema of the table has named. Older files may be
            there.
    """

    turns: tuple[str, ...] = ()
    has_entropy: bool = False
    earlier: Callable[[], frozenset[str]] = field(default=frozenset, compare=False)

    def holds(self, root: str) -> bool:
        """Whether data files of the table may be below the folder `root`. Raises `StorageError`."""
        return root in self.turns or root in self.earlier()

    @classmethod
    def of(cls, options: opt.Options) -> "ExternalPaths | None":
        """The external paths that the table's options name; None for a table that never had
        external paths. Raises `InvalidOption` for a path without a scheme, and for a strategy whose
        scheme or weights do not fit the paths.
        """
        strategy = options.value(opt.EXTERNAL_STRATEGY)
        if not options.value(opt.EXTERNAL_PATHS):
            return None
        if strategy == "none":
            return cls()
        roots = external_roots(options)
        if strategy == "specific-fs":
            scheme = options.value(opt.EXTERNAL_FS)
            roots = [root for root in roots if scheme_of(root) == scheme]
        is_weighted = strategy == "weight-robin" and options.is_set(opt.EXTERNAL_WEIGHTS)
        weights = [1] * len(roots)
        if is_weighted:
            weights = options.value(opt.EXTERNAL_WEIGHTS)
        if not roots or len(weights) != len(roots):
            raise InvalidOption(
                f"{opt.EXTERNAL_PATHS.key!r}: with {strategy} it has {len(roots)} paths and "
                f"{len(weights)} weights. Set scheme or weights to fit.",
                option=opt.EXTERNAL_PATHS.key,
            )
        turns: list[str] = []
        for root, weight in zip(roots, weights, strict=True):
            share = weight
            if is_weighted:  # the paths share a thousand turns by their weights
                share = max(1, 1000 * weight // sum(weights))
            turns += [root] * share
        return cls(tuple(turns), strategy == "entropy-inject")

    def place(self, folder: str, name: str, turn: int) -> str:
        """The path of a new data file, as the table's storage shows it.

        Args:
            folder: the folder of the file's bucket.
            name: the name of the file.
            turn: a number that begins anywhere and grows by one with each file of a writer.
        """
        if not self.turns:
            return f"{folder}/{name}"
        if self.has_entropy:
            # The folders are named by 20 bits of a hash of the file's name: 4, 4, 4 and 8 bits.
            bits = f"{hash_bytes(name.encode(), seed=0) & 0xFFFFF:020b}"
            folder = "/".join((folder, bits[:4], bits[4:8], bits[8:12], bits[12:]))
        return f"{shown_root(self.turns[turn % len(self.turns)])}{folder}/{name}"


def external_roots(options: opt.Options) -> list[str]:
    """The table's external paths, in the form in which `_EXTERNAL_PATH` begins, under any strategy.
    Raises `InvalidOption`.
    """
    paths = options.value(opt.EXTERNAL_PATHS).split(",")
    return [_as_java_prints(path.strip()) for path in paths if path.strip()]


def _as_java_prints(path: str) -> str:
    """The path as Java's `Path` prints it: `file:/x` for `file:///x/`."""
    if not scheme_of(path):
        raise InvalidOption(
            f"{opt.EXTERNAL_PATHS.key!r} has a path without a scheme, {path!r}. "
            "Set it to file:///folder or the like.",
            option=opt.EXTERNAL_PATHS.key,
            value=path,
        )
    scheme, _, rest = path.partition(":")
    if rest.startswith("//"):
        host, _, inner = rest[2:].partition("/")
    else:
        host = ""
        inner = rest
    folder = re.sub("/+", "/", f"/{inner}").rstrip("/")
    return f"{scheme}://{host}{folder}" if host else f"{scheme}:{folder}"


SNAPSHOT_FOLDER: Final = "snapshot"
SCHEMA_FOLDER: Final = "schema"
STATISTICS_FOLDER: Final = "statistics"
MANIFEST_FOLDER: Final = "manifest"
INDEX_FOLDER: Final = "index"
TAG_FOLDER: Final = "tag"
OWN_FOLDER: Final = "_paimon_stream"
RECEIPT_FOLDER: Final = f"{OWN_FOLDER}/once.receipts"
"""The folder of the receipts (`receipts.py`)."""
CHANGELOG_FOLDER: Final = "changelog"
LATEST_HINT: Final = f"{SNAPSHOT_FOLDER}/LATEST"
PIN_PREFIX: Final = "paimon-stream-rollback-"
"""Tags with this prefix in their names are the pins of rollbacks."""
EARLIEST_HINT: Final = f"{SNAPSHOT_FOLDER}/EARLIEST"

_ENTROPY: Final = re.compile(r"/(([01]{4}/){3}[01]{8}/)?\Z")
"""The end of a folder's path: a slash, and perhaps the folders of bits."""
_LONGEST_USER: Final = 180
"""The most characters in the name of a commit user's folder."""
_MOST_DIGITS: Final = 100
"""Longer numbers in names are not parsed."""
_HINT_BYTES: Final = 32
"""The most bytes of a hint that is read."""


def snapshot_path(snapshot_id: int) -> str:
    """The file of a snapshot."""
    return f"{SNAPSHOT_FOLDER}/snapshot-{snapshot_id}"


def schema_path(schema_id: int) -> str:
    """The file of a schema."""
    return f"{SCHEMA_FOLDER}/schema-{schema_id}"


def manifest_path(name: str) -> str:
    """The file of a manifest, manifest list or index manifest. Raises `CorruptMetadata` for an
    impossible name.
    """
    return f"{MANIFEST_FOLDER}/{names.checked_name(name, MANIFEST_FOLDER, 'The metadata')}"


def statistics_path(name: str) -> str:
    """The file of statistics, by its name. Raises `CorruptMetadata` for a name that no file can
    have.
    """
    return f"{STATISTICS_FOLDER}/{names.checked_name(name, STATISTICS_FOLDER, 'The metadata')}"


def tag_path(name: str) -> str:
    """The file of a tag."""
    return f"{TAG_FOLDER}/tag-{name}"


def id_in_name(name: str, prefix: str) -> int | None:
    """The number after the prefix (`snapshot-12` → 12); None for any other name (format.md §1.1),
    and for a number of more than 64 bits.
    """
    if not name.startswith(prefix):
        return None
    digits = name[len(prefix) :]
    if not (digits.isdigit() and digits.isascii() and len(digits) < _MOST_DIGITS):
        return None
    number = int(digits)
    return number if number < 2**63 else None


def read_hint(storage: Storage, path: str) -> str | None:
    """The text of a hint file; None if it is missing. A file of more than 32 bytes is not read. In
    that case the text says that the file is larger than that. Raises `StorageError`.
    """
    try:
        return storage.read(path, _HINT_BYTES).decode("utf-8", "replace")
    except NotFound:
        return None
    except CorruptMetadata:
        return f"(more than {_HINT_BYTES} bytes)"


@lru_cache(256)
def escape_user(user: str) -> str:
    """The commit user as the name of a file or folder, which is different for each user. Everything
    but ASCII letters, digits, `_` and `-` becomes the `%XX` of its UTF-8 bytes. A name that is too
    long for a file is cut, and ends in a hash.
    """
    if not user:
        return "%"  # no other user becomes this
    escaped = quote(user, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if len(escaped) <= _LONGEST_USER:
        return escaped
    digest = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
    return (
        f"{escaped[: _LONGEST_USER - 66]}%-{digest}"  # the mark and the digest have 66 characters
    )


def user_folder(user: str) -> str:
    """The folder in which this package keeps the files of one commit user. The folder's name has no
    dot. Each note beside these folders has a dot in its name. So no user's folder has the name of a
    note: `branch.<name>`, `expiring.<id>`, `clock.<uuid>`, `removed.<when>.json`, `identity.json`,
    `rolled-back.json`. The folder of the receipts has a dot in its name, too.
    """
    return f"{OWN_FOLDER}/{escape_user(user)}"


def user_folders(storage: Storage) -> list[str]:
    """The folders of all commit users of whom this package keeps files."""
    names = storage.list_folders(OWN_FOLDER)
    return [f"{OWN_FOLDER}/{name}" for name in names if "." not in name]


@dataclass(slots=True)
class NameSource:
    """Names for the metadata files of one commit, such as `manifest-<uuid>-<n>`. Each kind counts
    from 0. All attempts of the commit use this source, so none gets the name of another.

    Attributes:
        uuid: the part that all names share.
        drawn: all names that were drawn so far.
    """

    uuid: str
    drawn: list[str] = field(default_factory=list, init=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False)

    def next(self, kind: str = "manifest") -> str:
        """The next name of a file of this kind: `manifest`, `manifest-list` or `index-manifest`."""
        name = f"{kind}-{self.uuid}-{self._counts[kind]}"
        self._counts[kind] += 1
        self.drawn.append(name)
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The folders in which the data files of one table are. Partition columns and options name
    them.

    Attributes:
        partition_keys: the names of the partition columns.
        partition_types: the types of the partition columns.
        directory: the folder of the table that has the partitions; empty if the table's own folder
            has them.
        default_name: the name of the folder for NULL (`partition.default-name`).
        legacy_name: whether folders have names in the old style (`partition.legacy-name`).
        index_beside_data: whether new index files lie in the folders of buckets.
        external: the external paths; None for a table that never had any.
    """

    partition_keys: tuple[str, ...]
    partition_types: tuple[DataType, ...]
    directory: str
    default_name: str
    legacy_name: bool
    index_beside_data: bool
    external: ExternalPaths | None

    @classmethod
    def of(cls, schema: TableSchema, options: opt.Options) -> "Layout":
        """The layout of a table. Raises `InvalidOption` if `data-file.path-directory` leads out of
        the table, or if no engine could use the external paths.
        """
        # Java resolves a leading slash from the root of the file system, so it is refused.
        key = opt.DATA_FILE_DIRECTORY.key
        directory = ""
        if key in options:
            directory = options.value(opt.DATA_FILE_DIRECTORY).rstrip("/")
        try:
            if directory:
                directory = checked_path(directory)
        except InvalidOption:
            raise InvalidOption(
                f"Option {key!r} is {directory!r}, which is not a folder inside the table. "
                "Give a relative path without '..'.",
                option=key,
                value=directory,
            ) from None
        return cls(
            partition_keys=schema.partition_keys,
            partition_types=tuple(field.type for field in schema.partition_fields),
            directory=directory,
            default_name=options.value(opt.PARTITION_DEFAULT_NAME),
            legacy_name=options.value(opt.PARTITION_LEGACY_NAME),
            index_beside_data=options.value(opt.INDEX_IN_DATA_DIR),
            external=ExternalPaths.of(options),
        )

    def partition_values(self, partition: bytes) -> Sequence[object]:
        """The values of a serialized partition row (see `format/binary_row.py`), in key order.
        Raises `FormatError`.
        """
        return deserialize_partition(self.partition_types, partition)

    def partition(self, partition: bytes) -> str:
        """The folder of a serialized partition row, such as `dt=19782/region=x`; empty without
        partitions. Raises `FormatError` if the bytes are not a partition row.
        """
        if not self.partition_keys and partition == EMPTY_ROW:
            return ""
        return partition_path(
            self.partition_keys,
            self.partition_types,
            self.partition_values(partition),
            self.default_name,
            legacy=self.legacy_name,
        )

    @property
    def roots(self) -> tuple[str, ...]:
        """The external roots for new files, as the table's storage shows them."""
        if self.external is None:
            return ()
        return tuple(map(shown_root, dict.fromkeys(self.external.turns)))

    def bucket_folder(self, partition: bytes, bucket: int, external: str | None = None) -> str:
        """The folder of a bucket of a partition, as the table's storage shows it.

        Args:
            partition: the serialized partition row.
            bucket: the bucket.
            external: the `_EXTERNAL_PATH` of a file outside the table. If it is given, the folder
                of that file is returned.

        Raises:
            FormatError: the table cannot have such a partition, bucket or external path.
        """
        folder = self.partition(partition)
        parts = folder.split("/") if folder else ()
        for part in parts:
            names.checked_name(part, folder, "The partition of an entry")  # raises for a wrong name
        if not names.is_bucket(bucket):
            raise CorruptMetadata(
                f"An entry is of bucket {bucket}, which no table has. Run verify.", bucket=bucket
            )
        is_postponed = bucket == names.POSTPONE_BUCKET
        name = "bucket-postpone" if is_postponed else f"bucket-{bucket}"  # format.md §1.1
        folder = "/".join(part for part in (self.directory, folder, name) if part)
        if external is None:
            return folder
        return self._outside(folder, external)

    def _outside(self, folder: str, path: str) -> str:
        """The folder of the file at an external path, as the table's storage shows it. `folder` is
        the folder of the file's bucket in the table. Raises `CorruptMetadata`.
        """
        # After the root comes the bucket's folder, then perhaps folders of bits.
        root, separator, entropy = f"{path.rpartition('/')[0]}/".rpartition(f"/{folder}/")
        is_in_folder = separator and _ENTROPY.fullmatch(f"/{entropy}")
        if self.external is None or not is_in_folder or not self.external.holds(root):
            raise CorruptMetadata(
                f"A data file lies outside the table, at {names.shown_name(path)}: data-file.external-paths "
                f"is not set or never named it, or this is in no {folder}. Reads refuse it.",
                path=path,
            )
        return f"{shown_root(root)}{folder}/{entropy}".rstrip("/")

    def data_file(
        self, partition: bytes, bucket: int, name: str, external: str | None = None
    ) -> str:
        """The path of a data file, or of a file that lies beside it, as the table's storage shows
        it. `external` is the data file's `_EXTERNAL_PATH`. Raises `FormatError` if the table cannot
        have such a file.
        """
        return self.in_folder(self.bucket_folder(partition, bucket, external), name)

    def whole_path(self, location: str, entry: ManifestEntry) -> str:
        """The full path of a data file, for a table at `location`. Raises `FormatError`."""
        return entry.file.external_path or f"{location}/{self.file_of(entry)}"

    def file_of(self, entry: ManifestEntry) -> str:
        """The path of the data file of a manifest entry. Raises what `data_file` raises."""
        return self.data_file(
            entry.partition, entry.bucket, entry.file.file_name, entry.file.external_path
        )

    def in_folder(self, folder: str, name: str) -> str:
        """The path of a data file in `folder`, the folder of a bucket. Raises `CorruptMetadata` for
        a name that no file can have.
        """
        return f"{folder}/{names.checked_name(name, folder, f'An entry of {folder}')}"

    def index_file(self, partition: bytes, bucket: int, file: IndexFileMeta) -> str:
        """The path of an index file. Raises what `data_file` raises."""
        if file.external_path is not None or (self.index_beside_data and file.global_index is None):
            return self.data_file(partition, bucket, file.file_name, file.external_path)
        return self.in_folder(INDEX_FOLDER, file.file_name)

    def holds(self, path: str) -> bool:
        """Whether a data file or index file can have this path. The path must be in a bucket of a
        partition, or in the index folder. It is relative to the table, or begins with an external
        path that the options name.
        """
        folder, _, name = path.rpartition("/")
        if names.wrong_with(name) is not None:
            return False
        if folder == INDEX_FOLDER:
            return True
        root, inner = split_root(f"{folder}/")
        # The slash at the end is removed, and in external paths also the folders named by bits of a
        # hash.
        inner = _ENTROPY.sub("", inner) if root else inner[:-1]
        start = f"{self.directory}/" if self.directory else ""
        *partitions, bucket = inner.removeprefix(start).split("/")
        return (
            root in ("", *self.roots)
            and inner.startswith(start)
            and names.is_bucket_folder(bucket)
            and len(partitions) == len(self.partition_keys)
            and all(map(names.is_partition_folder, partitions, self.partition_keys))
            and not any(map(names.wrong_with, partitions))
        )
