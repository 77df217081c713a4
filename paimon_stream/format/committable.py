"""Committables: all messages of one commit, and what its snapshot is to carry.

The bytes are those of Java Paimon's ManifestCommittable (format.md §8.3), so either side can commit what the
other prepared. Version 5 is written and read. The version of the committable is not part of the bytes; it
travels beside them. The version of the messages is part of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final

from paimon_stream.errors import InvalidData, UnknownVersion
from paimon_stream.format.commit_message import CommitMessage, MessageInput
from paimon_stream.format.data_input import INT, LONG, encode_text

__all__ = ["ManifestCommittable"]

_SMALLEST_PROPERTY: Final = 4
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestCommittable:
    """One commit: its identifier, its watermark in epoch milliseconds (None if it has none), the properties
    of its snapshot, and its messages."""

    VERSION: ClassVar[int] = 5

    identifier: int
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=lambda: _NO_PROPERTIES)
    messages: tuple[CommitMessage, ...] = ()

    def serialize(self) -> bytes:
        """The committable in version 5. Raises `InvalidData` for what that version cannot hold."""
        try:
            out = [LONG.pack(self.identifier)]
            # Unlike all other flags, this one is set if there is no watermark.
            out.append(b"\1" if self.watermark is None else b"\0" + LONG.pack(self.watermark))
        except struct.error as why:
            raise InvalidData(f"Commit {self.identifier} does not fit into a committable: {why}.") from None
        out.append(INT.pack(len(self.properties)))
        for key, value in self.properties.items():
            out += (encode_text(key), encode_text(value))
        out += (INT.pack(CommitMessage.VERSION), CommitMessage.serialize_all(self.messages))
        return b"".join(out)

    @staticmethod
    def deserialize(data: bytes, version: int = VERSION) -> ManifestCommittable:
        """The committable that makes up all of these bytes; its messages may be of version 11 or 12.

        Raises `FormatError`, and `UnknownVersion` for other versions.
        """
        if version != ManifestCommittable.VERSION:
            raise UnknownVersion(
                f"Committables of version {version} cannot be read; version {ManifestCommittable.VERSION} "
                "can. Commit them with the release that made them.",
                version=version,
            )
        source = MessageInput(data, CommitMessage.VERSION, "committable")
        identifier = source.long()
        watermark = None if source.flag() else source.long()
        count = source.count(_SMALLEST_PROPERTY)
        properties = {source.text(): source.text() for _ in range(count)}
        source.version = source.number()
        messages = source.messages()
        source.finish()
        return ManifestCommittable(
            identifier=identifier,
            watermark=watermark,
            properties=MappingProxyType(properties),
            messages=messages,
        )
