"""Reads and lists ahead in storages whose answers take long (stores.md §8). `Storage.together`
decides how many requests are in flight at once. Files that were fetched ahead stay in memory until
they are read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from paimon_stream.errors import PaimonStreamError
from paimon_stream.storage.base import MOST_BYTES, Storage, check_size
from paimon_stream.storage.together import AT_ONCE, Request, in_turn

T = TypeVar("T")

_MOST_FILES: Final = 4 * AT_ONCE
"""The most files that are read ahead at once."""
_MOST_BYTES: Final = 32 << 20
"""About the most bytes that are read ahead at once."""


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists, each of at most `size` items."""
    waiting = iter(items)
    while group := list(islice(waiting, size)):
        yield group


def pages_of_all(storage: Storage, sources: Iterable[Iterator[T]]) -> Iterator[tuple[int, T]]:
    """The pages of several listings, each with the number of its listing. Where answers come late,
    the next pages of several listings are requested at once. The open listings take turns, so that
    they end at about the same time. So the last requests are sent together, too. In other storages
    one listing follows the other.
    """
    waiting = enumerate(sources)
    asked_at_once = AT_ONCE if storage.answers_late else 1
    open_at_once = 4 * AT_ONCE if storage.answers_late else 1
    active = list(islice(waiting, open_at_once))
    while active:
        turn = active[:asked_at_once]
        active = active[asked_at_once:]
        pages = storage.together([partial(next, source, None) for _, source in turn])
        for numbered, page in zip(turn, pages, strict=True):
            if page is not None:
                number, _ = numbered
                yield number, page
                active.append(numbered)
        active += islice(waiting, open_at_once - len(active))


class Ahead(Generic[T]):
    """When a file is read, also fetches the files that are expected next. Where answers do
    not come late, nothing is fetched ahead (`helps`). Only one thread may use this object.
    """

    def __init__(self, storage: Storage, fetch: Callable[[str], T], most_files: int) -> None:
        self._storage = storage
        self._fetch = fetch
        self._most_files = most_files
        self._expected: dict[str, int] = {}
        """The sizes of the files that are expected, in the order in which they are."""
        self._held: dict[str, T] = {}
        """What was fetched and not handed out yet."""
        self.helps = storage.answers_late

    def expect(self, files: Iterable[tuple[str, int]]) -> None:
        """Announces the files that are read next, in about this order. Each comes with the number
        of bytes that it takes in memory, or a guess.
        """
        if self.helps:
            self._expected.update((path, size) for path, size in files if path not in self._held)

    def forget(self) -> None:
        """Forgets the files that were expected, and those that were fetched and not taken."""
        self._expected = {}
        self._held = {}

    def peek(self, path: str) -> T | None:
        """Returns the content of a file, as `take` does, but keeps it, so that it can be asked for
        again.
        """
        if path in self._expected:
            group = self._take_group(path)
            fetched = self._storage.together([partial(self._tried, file) for file in group])
            for file, content in zip(group, fetched, strict=True):
                if content is not None:
                    self._held[file] = content
        return self._held.get(path)

    def _take_group(self, path: str) -> list[str]:
        """Removes a file from the expected files, and as many of the next files as there is room
        for. Returns these files.
        """
        group = [path]
        size = self._expected.pop(path)
        room = _MOST_BYTES - size
        while self._expected and len(group) < self._most_files and room > 0:
            file = next(iter(self._expected))
            group.append(file)
            room -= self._expected.pop(file)
        return group

    def hold(self, path: str) -> None:
        """Fetches a file that is read later. Unlike the other methods, several threads may call
        this one at the same time.
        """
        if path not in self._held:
            content = self._tried(path)
            if content is not None:
                self._held[path] = content

    def take(self, path: str) -> T | None:
        """Returns the content of a file that is expected or held, and forgets the file. None if it
        is neither expected nor held, or if it could not be fetched.
        """
        self.peek(path)
        return self._held.pop(path, None)

    def _tried(self, path: str) -> T | None:
        """Fetches a file; None if that fails."""
        try:
            return self._fetch(path)
        except PaimonStreamError:
            return None


class ReadAhead(Ahead[bytes]):
    """Reads files whose content never changes. With each file, the files that are expected next are
    read, too. A file that could not be read ahead is read again when it is wanted, and the error is
    raised only at that time.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, storage.read, _MOST_FILES)

    @property
    def location(self) -> str:
        """The location of the storage."""
        return self._storage.location

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content of a file, as in `Storage.read`."""
        data = self.take(path)
        if data is None:
            return self._storage.read(path, limit)
        check_size(f"{self.location}/{path}", len(data), limit)
        return data

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of the requests, which run one after the other, because the files that they
        read were fetched ahead.
        """
        return in_turn(requests)


class OpenAhead(Ahead[Any]):
    """Opens data files. With each file, some of the files that are expected next are opened, too.
    In an object store, a newly opened source holds at most one MiB.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, storage.open_input, AT_ONCE)

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """Opens a data file, as `Storage.open_input` does."""
        source = self.take(path)
        return self._storage.open_input(path) if source is None else source
