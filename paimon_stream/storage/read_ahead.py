"""Reading and listing ahead, where waiting for an answer takes long (stores.md §8).
`Storage.together` decides what is in flight at once. Files that were fetched ahead stay in memory
until they are read.
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
    """The items in lists of at most `size`."""
    waiting = iter(items)
    while group := list(islice(waiting, size)):
        yield group


def pages_of_all(storage: Storage, sources: Iterable[Iterator[T]]) -> Iterator[tuple[int, T]]:
    """The pages of several listings, each with the number of its listing. The next pages of several
    listings are asked for at once, unless the storage has folders: then one listing follows the
    other. Open listings take turns. So they end at about the same time, and the last requests are
    sent together, too.
    """
    waiting = enumerate(sources)
    asked_at_once, open_at_once = (1, 1) if storage.has_folders else (AT_ONCE, 4 * AT_ONCE)
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
    """Fetches the files that are expected next along with the one that is wanted now. With a
    storage that answers at once, nothing is fetched ahead (`helps`). Not safe for several threads.
    """

    def __init__(self, storage: Storage, fetch: Callable[[str], T], most_files: int) -> None:
        self._storage = storage
        self._fetch = fetch
        self._most_files = most_files
        self._plan: dict[str, int] = {}  # the sizes of the files that are expected, in their order
        self._held: dict[str, T] = {}  # what was fetched and not handed out yet
        self.helps = not storage.has_folders

    def expect(self, files: Iterable[tuple[str, int]]) -> None:
        """Says which files are wanted next, in about this order, each with the bytes it takes in
        memory, or a guess.
        """
        if self.helps:
            self._plan.update((path, size) for path, size in files if path not in self._held)

    def forget(self) -> None:
        """Drops what was expected and not handed out."""
        self._plan = {}
        self._held = {}

    def peek(self, path: str) -> T | None:
        """Does what `take` does, but the content stays and can be asked for again."""
        if path in self._plan:
            group = self._next_group(path)
            fetched = self._storage.together([partial(self._tried, file) for file in group])
            for file, content in zip(group, fetched, strict=True):
                if content is not None:
                    self._held[file] = content
        return self._held.get(path)

    def _next_group(self, path: str) -> list[str]:
        """Removes a file from the plan, and as many that follow as there is room for. Returns
        them.
        """
        group = [path]
        size = self._plan.pop(path)
        room = _MOST_BYTES - size
        while self._plan and len(group) < self._most_files and room > 0:
            file = next(iter(self._plan))
            group.append(file)
            room -= self._plan.pop(file)
        return group

    def hold(self, path: str) -> None:
        """Fetches a file that is wanted later. Several threads may call this, unlike the rest."""
        if path not in self._held:
            content = self._tried(path)
            if content is not None:
                self._held[path] = content

    def take(self, path: str) -> T | None:
        """Hands out the content of a file that was expected or is held. None if the file is
        neither, was handed out before, or could not be fetched.
        """
        self.peek(path)
        return self._held.pop(path, None)

    def _tried(self, path: str) -> T | None:
        try:
            return self._fetch(path)
        except PaimonStreamError:
            return None


class ReadAhead(Ahead[bytes]):
    """Reads files whose content never changes, and with each of them those that are expected next.
    A file that could not be read ahead is read again when it is wanted, and only then raises its
    error.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, storage.read, _MOST_FILES)

    @property
    def location(self) -> str:
        """The location of the storage."""
        return self._storage.location

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """As `Storage.read`."""
        data = self.take(path)
        if data is None:
            return self._storage.read(path, limit)
        check_size(f"{self.location}/{path}", len(data), limit)
        return data

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of the requests, which run one after the other: what they read was fetched
        ahead.
        """
        return in_turn(requests)


class OpenAhead(Ahead[Any]):
    """Opens data files, and with each of them some of the next. In a store, a source that was just
    opened holds at most a MiB.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, storage.open_input, AT_ONCE)

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """As `Storage.open_input`."""
        source = self.take(path)
        return self._storage.open_input(path) if source is None else source
