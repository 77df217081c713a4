"""The requests to a Hive Metastore, declared by hand for Thrift (docs/spec/catalogs.md §6).

An object of the metastore is kept as the fields that came over the wire, by their numbers. So an
object that is read, changed and sent back keeps the fields that only a newer metastore knows.

A request has a connection of its own. No connection is shared by threads or forks, and none can be
stale. No request is repeated: it is unknown whether one without an answer was carried out.
"""

import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from paimon_stream import errors
from paimon_stream.catalogs.hive_login import Connection, Login, login_of
from paimon_stream.extras import require
from paimon_stream.runtime import Clock, system

BOOL: Final = 2
I32: Final = 8
I64: Final = 10
STRING: Final = 11
STRUCT: Final = 12
MAP: Final = 13
SET: Final = 14
LIST: Final = 15
"""The numbers of Thrift's types."""

_PORT: Final = 9083
_SECONDS: Final = 20.0
"""How long an answer of the metastore may be waited for."""
_AT_ONCE: Final = 65536
"""How many bytes are received at once."""
_DEEPEST: Final = 64
"""How deep the objects of an answer may be nested."""
_MESSAGE: Final = 1
"""The field of each exception of the metastore that has its text."""
_CALL: Final = 1
_EXCEPTION: Final = 3
"""The kinds of Thrift's messages."""
_UNKNOWN_METHOD: Final = 1
"""The kind of Thrift's exception for a method that the server does not have."""

_NO_SUCH: Final = "NoSuchObjectException"
_EXISTS: Final = "AlreadyExistsException"
_INVALID: Final = "InvalidObjectException"
_REFUSED: Final = "InvalidOperationException"
_META: Final = "MetaException"
_RAISED: Final[Mapping[str, Sequence[str]]] = {
    "get_all_databases": (_META,),
    "get_database": (_NO_SUCH, _META),
    "create_database": (_EXISTS, _INVALID, _META),
    "alter_database": (_META, _NO_SUCH),
    "drop_database": (_NO_SUCH, _REFUSED, _META),
    "get_all_tables": (_META,),
    "get_table": (_META, _NO_SUCH),
    "get_table_req": (_META, _NO_SUCH),
    "get_table_objects_by_name": (_META, _REFUSED, "UnknownDBException"),
    "get_table_objects_by_name_req": (_META, _REFUSED, "UnknownDBException"),
    "create_table": (_EXISTS, _INVALID, _META, _NO_SUCH),
    "drop_table": (_NO_SUCH, _META),
    "alter_table_with_environment_context": (_REFUSED, _META),
    "add_partitions_req": (_INVALID, _EXISTS, _META),
    "drop_partition": (_NO_SUCH, _META),
    "lock": ("NoSuchTxnException", "TxnAbortedException"),
    "check_lock": ("NoSuchTxnException", "TxnAbortedException", "NoSuchLockException"),
    "unlock": ("NoSuchLockException", "TxnOpenException"),
    "show_locks": (),
    "set_ugi": (_META,),
}
"""The methods, with the exceptions in the fields 1, 2, … of their results."""

_OF_LOCKS: Final = ("lock", "check_lock")
"""The methods that need the tables of locks in the metastore's database."""

_RESULTS: Final = {
    "get_all_databases": LIST,
    "get_database": STRUCT,
    "get_all_tables": LIST,
    "get_table": STRUCT,
    "get_table_req": STRUCT,
    "get_table_objects_by_name": LIST,
    "get_table_objects_by_name_req": STRUCT,
    "lock": STRUCT,
    "check_lock": STRUCT,
    "show_locks": STRUCT,
}
"""Thrift's types of the results that are used."""

_ERRORS: Final[Mapping[str, type[errors.StorageError]]] = {
    _NO_SUCH: errors.NotFound,
    "UnknownDBException": errors.NotFound,
    "NoSuchLockException": errors.NotFound,
    _EXISTS: errors.AlreadyExists,
    _INVALID: errors.StorageError,
    _REFUSED: errors.StorageError,
}
"""The error for each exception of the metastore. Any other exception is `Unavailable`."""
_OF_RIGHTS: Final = ("Permission denied", "AccessControlException", "Permission.NotAllow")
"""Parts of the text of an exception that means that the user lacks a right."""
_MODIFIED: Final = "has been modified"
"""A part of the text of the exception for a table that somebody else has changed."""
_ADVICE: Final = {
    False: "If it asks for a login (Kerberos), set 'hive.metastore.sasl.enabled' = 'true'.",
    True: "If it asks for no login (Kerberos), leave 'hive.metastore.sasl.enabled' out.",
}
"""What to do if the metastore does not answer, by whether the catalog logs in."""
_UNREACHED: Final = "cannot be reached"
"""A part of the message if no request was sent. The command line does not say again what is said."""


@dataclass(slots=True)
class Struct:
    """An object of the metastore.

    Attributes:
        fields: Thrift's type and the value of each field, by the field's number. A text is bytes. A
            list or set is a pair of the type of its items and a list. A map is the types of its
            keys and values, and a list of pairs.
    """

    fields: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def text(self, number: int) -> str:
        """The text in a field; empty if the field is missing."""
        _, value = self.fields.get(number, (STRING, b""))
        return str(value.decode("utf-8", "replace"))

    def number(self, number: int) -> int:
        """The integer in a field; 0 if the field is missing."""
        _, value = self.fields.get(number, (I32, 0))
        return int(value)

    def struct(self, number: int) -> "Struct":
        """The object in a field. If the field is missing, it gets an empty object."""
        _, value = self.fields.setdefault(number, (STRUCT, Struct()))
        if not isinstance(value, Struct):
            raise ValueError(f"the field {number} is no object")
        return value

    def items(self, number: int) -> list[Any]:
        """The items of the list in a field; empty if the field is missing."""
        _, (_, values) = self.fields.get(number, (LIST, (STRUCT, [])))
        return list(values)

    def texts(self, number: int) -> dict[str, str]:
        """The map of texts in a field; empty if the field is missing."""
        _, (_, _, pairs) = self.fields.get(number, (MAP, (STRING, STRING, [])))
        return {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in pairs
        }

    def set_text(self, number: int, value: str | None) -> None:
        """Sets the text in a field. None removes the field."""
        if value is None:
            self.fields.pop(number, None)
        else:
            self.fields[number] = STRING, value.encode()

    def set_texts(self, number: int, values: Mapping[str, str]) -> None:
        """Sets the map of texts in a field."""
        pairs = [(key.encode(), value.encode()) for key, value in values.items()]
        self.fields[number] = MAP, (STRING, STRING, pairs)

    def set_structs(self, number: int, values: Sequence["Struct"]) -> None:
        """Sets the list of objects in a field."""
        self.fields[number] = LIST, (STRUCT, list(values))


def is_stale(failed: errors.PaimonStreamError) -> bool:
    """Whether the metastore refused a change because somebody else has changed the table since."""
    return failed.context.get("problem") == _MODIFIED


def is_unsent(failed: BaseException) -> bool:
    """Whether no address could be reached, so that the metastore got no request."""
    return (
        isinstance(failed, errors.PaimonStreamError) and failed.context.get("problem") == _UNREACHED
    )


def text_list(values: Sequence[str]) -> tuple[int, Any]:
    """The field of a list of texts."""
    return LIST, (STRING, [value.encode() for value in values])


def struct_of(texts: Mapping[int, str]) -> Struct:
    """An object with these texts."""
    return Struct({number: (STRING, text.encode()) for number, text in texts.items()})


class _Connection:
    """A connection to the metastore, as Thrift's protocol wants it. Thrift's own connection logs
    Python's traces, waits for each piece of an answer anew, and reserves as much memory as a server
    says that it will send.
    """

    def __init__(self, connected: socket.socket, clock: Clock) -> None:
        self._connected = connected
        self._clock = clock
        self._requested = bytearray()
        self._received = bytearray()
        self._seconds = _SECONDS

    def write(self, data: bytes) -> None:
        """Keeps a part of a request until `flush`."""
        self._requested += data

    def flush(self) -> None:
        """Sends the request. The wait for its answer begins."""
        self._connected.settimeout(_SECONDS)
        self._connected.sendall(self._requested)
        self._requested.clear()
        self._seconds = _SECONDS

    def readAll(self, size: int) -> bytes:
        """The next `size` bytes of the answer. Raises `OSError` and `EOFError`."""
        while len(self._received) < size:
            if self._seconds <= 0:
                raise TimeoutError("its end did not come")
            began = self._clock.monotonic()
            self._connected.settimeout(self._seconds)
            received = self._connected.recv(_AT_ONCE)
            self._seconds -= self._clock.monotonic() - began  # reading what came is not waiting
            if not received:
                raise EOFError("the connection was closed")
            self._received += received
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


@dataclass(frozen=True, slots=True)
class HiveClient:
    """The metastore at an address.

    Attributes:
        uri: the option `uri` of the catalog. Several addresses are separated by commas. The first
            that can be reached is asked.
        login: how to log in with Kerberos; None if the metastore does not ask for that.
    """

    uri: str
    login: Login | None = None

    def ask(self, method: str, arguments: Struct) -> Any:
        """The result of a method; None if it has none.

        Args:
            method: the name of the method, which is in `_RAISED`.
            arguments: the arguments, by their numbers.

        Raises:
            NotFound, AlreadyExists, PermissionDenied, StorageError: the metastore refused.
            UnsupportedFeature: the metastore does not have the method.
            Unavailable: it is unknown whether the request was carried out. If `is_stale` is true of
                the error, nothing was changed, because somebody else has changed the table.
            InvalidOption: `uri` is no address.
            MissingExtra: thrift is not installed.
        """
        require("thrift", "hive", f"The Hive Metastore {self._shown}")
        with self._connected(method) as protocol:
            if self.login is None:
                user = Struct({1: (STRING, user_name().encode()), 2: text_list([])})
                self._exchange(protocol, "set_ugi", user)
            return self._exchange(protocol, method, arguments)

    @property
    def _shown(self) -> str:
        return shown_addresses(self.uri)

    @contextmanager
    def _connected(self, method: str) -> Iterator[Any]:
        """A connection for one request, as a protocol of Thrift. Raises `Unavailable` if it breaks."""
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TException

        problem: Exception = OSError("there is no address")
        for address in _addresses(self.uri):
            try:
                connected = socket.create_connection(address, _SECONDS)
            except (OSError, UnicodeError) as failed:  # a name may be none of a host
                problem = failed
                continue
            connection = _Connection(connected, system().clock)
            try:
                with self._logged_in(connection, address[0]) as secured:
                    yield TBinaryProtocol(secured, strictRead=True)
            except (TException, OSError, EOFError, MemoryError, ValueError) as failed:
                raise self._unanswered(method, failed) from None
            finally:
                connected.close()
            return
        raise errors.Unavailable(
            f"The Hive Metastore {self._shown} cannot be reached for {method} "
            f"({_first_line(problem)}). Check that it runs, and the option 'uri'.",
            path=self._shown,
            problem=_UNREACHED,
        )

    def _logged_in(self, connection: Connection, host: str) -> AbstractContextManager[Connection]:
        """The connection after the login, if there is one."""
        if self.login is None:
            return nullcontext(connection)
        return self.login.logged_in(connection, host, self._shown)

    def _unanswered(self, method: str, problem: Exception) -> errors.Unavailable:
        """The error for a connection that broke, or on which the answer was no Thrift."""
        return errors.Unavailable(
            f"The Hive Metastore {self._shown} gave no answer to {method} within {_SECONDS:.0f} s, or "
            f"none in Thrift's binary form ({_first_line(problem)}). Look whether it was done, and try "
            f"again. {_ADVICE[self.login is not None]} Metastores with TLS are not supported.",
            path=self._shown,
        )

    def _exchange(self, protocol: Any, method: str, arguments: Struct) -> Any:
        """Sends a request and reads its result. Raises the errors of `ask`."""
        protocol.writeMessageBegin(method, _CALL, 0)
        _write(protocol, STRUCT, arguments)
        protocol.writeMessageEnd()
        protocol.trans.flush()
        _, kind, _ = protocol.readMessageBegin()
        result = _read(protocol, STRUCT)
        protocol.readMessageEnd()
        if kind == _EXCEPTION:
            raise self._failure_of_call(method, result)
        for number, name in enumerate(_RAISED[method], start=1):
            if number in result.fields:
                raise self._failure(method, name, result.struct(number).text(_MESSAGE))
        kind_of_result, value = result.fields.get(0, (None, None))
        if method in _RESULTS and kind_of_result != _RESULTS[method]:
            raise ValueError(f"the result is of another type: {kind_of_result}")
        return value

    def _failure_of_call(self, method: str, exception: Struct) -> errors.PaimonStreamError:
        """The error for an exception of Thrift itself."""
        text = exception.text(1)
        if exception.number(2) == _UNKNOWN_METHOD:
            return errors.UnsupportedFeature(
                f"The Hive Metastore {self._shown} does not know the method {method} ({text}). "
                "Metastores of Hive 2.3 to 4 are supported.",
                method=method,
            )
        if method in _OF_LOCKS:
            return errors.Unavailable(
                f"The Hive Metastore {self._shown} failed in {method} ({text[:300]}). Its log has the "
                "cause. If its database lacks the tables of locks, make them with its schematool "
                "(-initSchema, or -upgradeSchema). If no engine of Java writes to the table, "
                "'lock.enabled' = 'false' does without the lock.",
                path=self._shown,
            )
        return self._failure(method, _META, text)

    def _failure(self, method: str, name: str, text: str) -> errors.StorageError:
        """The error for an exception of the metastore.

        Args:
            method: the method that raised the exception.
            name: the class of the exception.
            text: the text of the exception.
        """
        kind = _ERRORS.get(name, errors.Unavailable)
        advice = (
            "Check what was asked for."
            if name in _ERRORS
            else "Look whether it was done, and try again."
        )
        if any(part in text for part in _OF_RIGHTS):
            kind = errors.PermissionDenied
            advice = f"Give the user {user_name()!r} the right, or set HADOOP_USER_NAME."
        return kind(
            f"The Hive Metastore {self._shown} refused {method}: {name}: {text[:300]}. {advice}",
            path=self._shown,
            problem=_MODIFIED if _MODIFIED in text else None,
        )


def client_of(options: Mapping[str, str]) -> HiveClient:
    """The metastore that the options of a catalog name. Raises `InvalidOption`."""
    return HiveClient(options["uri"], login_of(options))


def user_name() -> str:
    """The user in whose name the metastore is asked, as in Java: that of the process, if the
    environment names no other one.
    """
    named = os.environ.get("HADOOP_USER_NAME")
    if named:
        return named
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _first_line(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    return text.splitlines()[0][:200]


def shown_addresses(uri: str) -> str:
    """The option `uri` without user, password, query and fragment. Its scheme may be missing."""
    scheme, separator, _ = uri.partition("://")
    *logins, address = uri.rsplit("@", 1)
    begin = f"{scheme}{separator}" if logins and separator else ""
    return re.split("[?#]", f"{begin}{address}", maxsplit=1)[0]


def _addresses(uri: str) -> list[tuple[str, int]]:
    """The hosts and ports in the option `uri`. Raises `InvalidOption`."""
    addresses = []
    for address in uri.split(","):
        scheme, separator, authority = address.strip().rstrip("/").partition("://")
        has_port = ":" in authority.rpartition("]")[2]  # an IPv6 address has colons in brackets
        host, _, port = authority.rpartition(":") if has_port else (authority, "", str(_PORT))
        is_port = port.isascii() and port.isdecimal() and int(port) < 65536
        if scheme.lower() != "thrift" or not separator or not host or not is_port or "@" in host:
            raise errors.InvalidOption(
                f"Option 'uri' is {shown_addresses(uri)!r}. "
                "Set it to the address of the Hive Metastore, thrift://host:9083.",
                option="uri",
            )
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _write(protocol: Any, kind: int, value: Any) -> None:
    """Writes a value of one of Thrift's types."""
    if kind == STRUCT:
        for number, (inner, content) in value.fields.items():
            protocol.writeFieldBegin("", inner, number)
            _write(protocol, inner, content)
        protocol.writeFieldStop()
    elif kind == MAP:
        of_keys, of_values, pairs = value
        protocol.writeMapBegin(of_keys, of_values, len(pairs))
        for key, content in pairs:
            _write(protocol, of_keys, key)
            _write(protocol, of_values, content)
    elif kind in (LIST, SET):
        of_items, items = value
        protocol.writeListBegin(of_items, len(items))  # a set has the same form
        for content in items:
            _write(protocol, of_items, content)
    else:
        getattr(protocol, f"write{_METHODS[kind]}")(value)


def _read(protocol: Any, kind: int, depth: int = 0) -> Any:
    """Reads a value of one of Thrift's types, at a depth of nesting. Raises `ValueError`."""
    if depth > _DEEPEST:
        raise ValueError("the objects of the answer are nested too deep")
    if kind == STRUCT:
        fields: dict[int, tuple[int, Any]] = {}
        while True:
            _, inner, number = protocol.readFieldBegin()
            if inner == 0:
                return Struct(fields)
            fields[number] = inner, _read(protocol, inner, depth + 1)
    if kind == MAP:
        of_keys, of_values, count = protocol.readMapBegin()
        pairs = [
            (_read(protocol, of_keys, depth + 1), _read(protocol, of_values, depth + 1))
            for _ in range(count)
        ]
        return of_keys, of_values, pairs
    if kind in (LIST, SET):
        of_items, count = protocol.readListBegin()
        return of_items, [_read(protocol, of_items, depth + 1) for _ in range(count)]
    if kind not in _METHODS:
        raise ValueError(f"the answer has a value of the unknown type {kind}")
    return getattr(protocol, f"read{_METHODS[kind]}")()


_METHODS: Final = {
    BOOL: "Bool",
    3: "Byte",
    4: "Double",
    6: "I16",
    I32: "I32",
    I64: "I64",
    STRING: "Binary",
}
"""The names of the methods of Thrift's protocol that read and write plain values."""
