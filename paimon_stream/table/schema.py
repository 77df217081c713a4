"""Reads the schemas of a table, and creates new ones. Schema 0 creates the table. The ids of
schemas have no gaps. So a schema is the newest if it exists and the next id does not.
"""

import hashlib
from collections.abc import Iterator
from functools import partial

from paimon_stream.errors import (
    CorruptMetadata,
    FormatError,
    IncompatibleSchema,
    NotFound,
    UnsupportedFeature,
    first_few,
)
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.schema_json import TableSchema, decode_schema, encode_schema
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import BranchStorage, branch_names
from paimon_stream.table.layout import SCHEMA_FOLDER, SNAPSHOT_FOLDER, id_in_name, schema_path

_PREFIX = "schema-"


def no_such_table(storage: Storage) -> NotFound:
    """The error for a location without a table. Its message says what to do. Raises
    `StorageError`.
    """
    if isinstance(storage, BranchStorage):
        return no_such_branch(storage)
    location = storage.location
    below = tuple(_tables_below(storage))
    if below:
        tables = [f"{location}/{table}" for table in below]
        message = (
            f"There is no Paimon table at {location}: it has no file {schema_path(0)}. "
            f"It is a folder of tables: {first_few(tables)}. Give the folder of one table."
        )
    elif storage.list_names(SNAPSHOT_FOLDER):
        message = (
            f"There is no Paimon table at {location}: it has no file {schema_path(0)}. "
            "But it holds snapshots, so it was a table: its schema files were deleted. "
            "Restore them from a backup; do not create a table here."
        )
    else:
        message = (
            f"There is no Paimon table at {location}: it has no file {schema_path(0)}. "
            f"Create the table with PaimonTable.create({location!r}, schema=...), or correct the location; "
            "it is the table's own folder, <warehouse>/<database>.db/<table>."
        )
    return NotFound(message, path=location, table=location, tables=below)


def no_such_branch(storage: BranchStorage) -> NotFound:
    """The error for a branch that does not exist, or whose creation or deletion was interrupted.
    Raises `StorageError`.
    """
    table = storage.wrapped
    if not table.list_names(SCHEMA_FOLDER, _PREFIX):
        return no_such_table(table)
    return NotFound(
        f"has no branch {storage.branch!r}, or its creation or deletion was interrupted. Its branches: "
        f"{', '.join(branch_names(table)) or 'none but main'}. Give one of them, or run create_branch() for it, or "
        "delete_branch() if its deletion was interrupted.",
        branch=storage.branch,
    ).of_table(table.location, subject=True)


def _tables_below(storage: Storage) -> Iterator[str]:
    """The tables of a warehouse or of a database (format.md §1.1), as paths below the location."""
    for folder in storage.list_folders(""):
        if storage.exists(f"{folder}/{schema_path(0)}"):
            yield folder
        elif folder.endswith(".db"):
            for name in storage.list_folders(folder):
                if storage.exists(f"{folder}/{name}/{schema_path(0)}"):
                    yield f"{folder}/{name}"


class SchemaStore:
    """The schema files of one table. Nothing is cached: each question is asked of the storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def latest_id(self) -> int | None:
        """The largest schema id, None if there is no table (format.md §2: there is no hint)."""
        return max(self.ids(), default=None)

    def ids(self) -> list[int]:
        """The ids of all schemas, ascending; [] if there is no table."""
        names = (stat.name for stat in self._storage.list_files(SCHEMA_FOLDER, _PREFIX))
        ids = [id_in_name(name, _PREFIX) for name in names]
        return sorted(schema_id for schema_id in ids if schema_id is not None)

    def latest(self) -> TableSchema:
        """The newest schema. Raises `CorruptMetadata`, `UnknownVersion`, and `NotFound` if there is
        no table.
        """
        ids, first = self._storage.together([self.ids, partial(self._if_readable, 0)])
        if not ids:
            raise no_such_table(self._storage)
        return first if first is not None and ids[-1] == 0 else self.get(ids[-1])

    def newest(self, known: TableSchema) -> TableSchema:
        """The newest schema. It is found without a listing if `known` is still the newest. Raises
        what `latest` raises.
        """
        looks = (partial(self.exists, known.id + 1), partial(self._if_readable, known.id))
        follows, stored = self._storage.together(looks)
        if not follows and stored == known:
            return known
        return self.latest()

    def newest_id(self, known_id: int) -> int | None:
        """The largest schema id. It is found without a listing if `known_id` is still the
        largest.
        """
        looks = (partial(self.exists, known_id + 1), partial(self.exists, known_id))
        follows, exists = self._storage.together(looks)
        if exists and not follows:
            return known_id
        return self.latest_id()

    def exists(self, schema_id: int) -> bool:
        """Whether there is a schema with that id."""
        return self._storage.exists(schema_path(schema_id))

    def _if_readable(self, schema_id: int) -> TableSchema | None:
        try:
            return self.get(schema_id)
        except (FormatError, UnsupportedFeature):
            return None  # whoever needs the schema reports the error

    def get(self, schema_id: int) -> TableSchema:
        """The schema with that id. Raises `UnknownVersion`, `CorruptMetadata` if the schema is
        missing or broken, and `UnsupportedFeature` for types that cannot even be read. The message
        of each error names the file.
        """
        path = self._full(schema_path(schema_id))
        try:
            schema = decode_schema(self._read(schema_id), path)
        except (CorruptMetadata, UnsupportedFeature) as error:
            if "path" in error.context:
                raise
            raise type(error)(f"{path}: {error.message}", **error.context, path=path) from None
        if schema.id != schema_id:
            raise CorruptMetadata(
                f"{path} holds schema {schema.id}: the file was copied or renamed. Restore it from a backup.",
                path=path,
            )
        return schema

    def create(self, schema: TableSchema) -> bool:
        """Creates the schema's file atomically (schema 0 is the table itself); False if the file
        already exists. If the encoded schema cannot be read again, creates nothing and raises
        `IncompatibleSchema`. Raises `StorageError`.
        """
        content = self._readable(schema)
        return self._storage.put_if_absent(schema_path(schema.id), content) is PutResult.CREATED

    def _readable(self, schema: TableSchema) -> bytes:
        """The encoded schema, after a check that it can be read again. Raises `IncompatibleSchema`
        if it cannot.
        """
        path = self._full(schema_path(schema.id))
        try:
            data = encode_schema(schema)
            if len(data) <= MOST_JSON and decode_schema(data, path).fields == schema.fields:
                return data
            problem = f"{path} would have {len(data):,} bytes."
        except CorruptMetadata as error:
            problem = error.message.removesuffix(" Restore it from a backup.")
        except UnicodeEncodeError as error:
            problem = f"{path} would hold a name or an option that is not UTF-8 ({error.reason})."
        raise IncompatibleSchema(
            f"The schema was not created, because it could not be read again: {problem} "
            "Rename the columns, nest them less deeply, or have fewer.",
            path=path,
            table=self._storage.location,
        )

    def first_digest(self) -> str:
        """The SHA-256 of schema 0's bytes, in hex. Another digest means another table
        (exactly-once.md §5). Raises `NotFound` if there is no table, `CorruptMetadata` if only
        schema 0 is missing.
        """
        try:
            return hashlib.sha256(self._read(0)).hexdigest()
        except CorruptMetadata:
            if self.latest_id() is None:
                raise no_such_table(self._storage) from None
            raise

    def _read(self, schema_id: int) -> bytes:
        try:
            return self._storage.read(schema_path(schema_id), MOST_JSON)
        except NotFound:
            path = self._full(schema_path(schema_id))
            raise CorruptMetadata(
                f"{path} is missing, and the table needs it: schemas are never deleted while a table lives. "
                "Restore the file from a backup.",
                path=path,
                schema=schema_id,
            ) from None

    def _full(self, path: str) -> str:
        return f"{self._storage.location}/{path}"
