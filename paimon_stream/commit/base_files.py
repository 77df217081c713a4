"""The facts that the conflict rules need about the files of a commit's partitions (semantics.md §3.4)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry


@dataclass(frozen=True, slots=True)
class LiveFile:
    """The facts that the conflict rules need about a live file."""

    min_key: bytes
    max_key: bytes
    max_sequence_number: int

    @classmethod
    def of(cls, entry: ManifestEntry) -> "LiveFile":
        """The facts about an entry's file."""
        return cls(entry.file.min_key, entry.file.max_key, entry.file.max_sequence_number)


@dataclass(slots=True)
class KnownFiles:
    """The files of one or more partitions: the `live` ones; the `removed` ones, as far as manifests still
    name them; and those that are listed `twice`, which no table should have (semantics.md §3.5)."""

    live: "dict[FileIdentity, LiveFile]" = field(default_factory=dict)
    removed: set[FileIdentity] = field(default_factory=set)
    twice: set[FileIdentity] = field(default_factory=set)

    @classmethod
    def of(cls, parts: "Sequence[KnownFiles]") -> "KnownFiles":
        """The files of all these partitions."""
        if len(parts) == 1:
            return parts[0]
        whole = cls()
        for part in parts:
            whole.live.update(part.live)
            whole.removed.update(part.removed)
            whole.twice.update(part.twice)
        return whole

    def replay(self, entry: ManifestEntry) -> None:
        """Takes in an entry. Entries come in the order of their snapshots. As for readers, a file that a
        DELETE names is not live, even if an ADD follows."""
        identity = entry.identity
        if entry.kind is FileKind.DELETE:
            self.live.pop(identity, None)
            self.removed.add(identity)
        elif identity in self.live:
            self.twice.add(identity)
        elif identity not in self.removed:
            self.live[identity] = LiveFile.of(entry)

    @classmethod
    def replaced_by(cls, entries: Iterable[ManifestEntry]) -> "KnownFiles":
        """The files that must have been live before an overwrite with these entries, because an overwrite
        removes every live file that it has found."""
        known = cls()
        for entry in entries:
            if entry.kind is FileKind.DELETE:
                known.replay(replace(entry, kind=FileKind.ADD))
        return known

    def copy(self) -> "KnownFiles":
        """A copy that can be changed independently."""
        return KnownFiles(dict(self.live), set(self.removed), set(self.twice))

    def __len__(self) -> int:
        return len(self.live) + len(self.removed)
