"""The login at a Hive Metastore with Kerberos: Thrift's frames of SASL, with the mechanism GSSAPI
(RFC 4752). Hive calls it `hive.metastore.sasl.enabled`.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.kerberos import Conversation, KerberosFailure
from paimon_stream.options.option import Option

OF_LOGIN: Final = (
    "hive.metastore.sasl.enabled",
    "hive.metastore.kerberos.principal",
    "security.kerberos.login.principal",
    "security.kerberos.login.keytab",
)
"""The options of a login, under the names of Hive and of Java Paimon."""
_ENABLED: Final = Option(
    OF_LOGIN[0], opt.boolean, "false", "Whether the metastore asks for a login."
)

_START: Final = 1
_GOES_ON: Final = 2
_COMPLETE: Final = 5
"""The states of a login: the first byte of each message."""
_MECHANISM: Final = b"GSSAPI"
_LONGEST: Final = 1 << 30
"""What is longer than this number of bytes is no frame."""
_PIECE: Final = 1 << 14
"""How much is put into one frame that is signed or encrypted. Java's servers take four times that."""
_PLAIN: Final = 1
_SIGNED: Final = 2
_ENCRYPTED: Final = 4
"""How what follows the login is protected. A server offers a sum of these."""


class Connection(Protocol):
    """What a login needs of a connection."""

    def write(self, data: bytes) -> None:
        """Keeps a part of a request until `flush`."""

    def flush(self) -> None:
        """Sends the request."""

    def readAll(self, size: int) -> bytes:
        """The next `size` bytes of the answer. Raises `OSError`, `EOFError`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in, and where.

    Attributes:
        server: the principal of the metastore. `_HOST` in it stands for the host that is asked.
        principal: the principal of the user; empty for that of the cache of tickets.
        keytab: the file with the user's keys; empty for the cache of tickets.
    """

    server: str
    principal: str = ""
    keytab: str = ""

    @contextmanager
    def logged_in(self, connection: Connection, host: str, shown: str) -> Iterator[Connection]:
        """The connection after the login, whose content is protected as the metastore wants it.

        Args:
            connection: the connection to the metastore. Nothing was sent yet.
            host: the host of the metastore.
            shown: the metastore, for messages.

        Raises:
            InvalidOption: the keytab cannot be read.
            PermissionDenied: the user has no ticket, or the metastore does not let the user in.
            Unavailable: no server of the realm can be reached.
            UnsupportedFeature: the library of Kerberos is not installed.
            OSError, EOFError, ValueError: the connection broke, or the metastore asks for no login.
        """
        server = self.server.replace("_HOST", host.lower())
        if self.keytab and not os.access(self.keytab, os.R_OK):
            raise errors.InvalidOption(
                f"Option {OF_LOGIN[3]!r} is {self.keytab!r}, which is no file that this process can "
                "read. Set it to the path of the user's keytab on this machine.",
                option=OF_LOGIN[3],
            )
        keys = {"principal": self.principal, "keytab": self.keytab} if self.keytab else {}
        try:
            with Conversation(server, keys) as conversation:
                protection = _agreed(connection, conversation)
                if protection == _PLAIN:
                    yield _Framed(connection, None, encrypt=False)
                else:
                    yield _Framed(connection, conversation, encrypt=protection == _ENCRYPTED)
        except KerberosFailure as failed:
            raise self._refused(failed, server, shown) from None

    def _refused(self, failed: KerberosFailure, server: str, shown: str) -> errors.StorageError:
        """The error if Kerberos fails."""
        if failed.is_unreached:
            return errors.Unavailable(
                f"The Hive Metastore {shown} was not asked, because no server of Kerberos (KDC) can be "
                f"reached ({failed}). Check that it runs, and krb5.conf.",
                path=shown,
            )
        user = f"{self.principal} with {self.keytab}" if self.keytab else "the cache of tickets"
        return errors.PermissionDenied(
            f"The login at the Hive Metastore {shown}, whose principal is {server}, by {user} failed "
            f"({failed}). Get a ticket (kinit), or set 'security.kerberos.login.principal' and "
            "'security.kerberos.login.keytab', and check 'hive.metastore.kerberos.principal'.",
            path=shown,
        )


def login_of(options: Mapping[str, str]) -> Login | None:
    """The login that the options of a catalog describe; None if the metastore asks for none. Raises
    `InvalidOption`.
    """
    if not opt.Options(options).value(_ENABLED):
        return None
    _, server, principal, keytab = (options.get(key, "") for key in OF_LOGIN)
    if not server:
        raise errors.InvalidOption(
            f"Option {OF_LOGIN[1]!r} is not set. Set it to the principal of the Hive Metastore, such as "
            "hive/_HOST@EXAMPLE.COM.",
            option=OF_LOGIN[1],
        )
    if bool(principal) != bool(keytab):
        raise errors.InvalidOption(
            f"Of the options {OF_LOGIN[2]!r} and {OF_LOGIN[3]!r} only one is set. Set both, or none "
            "of them to use the cache of tickets.",
            option=OF_LOGIN[2],
        )
    return Login(server, principal, keytab)


def _agreed(connection: Connection, conversation: Conversation) -> int:
    """Logs in. Returns how what follows is protected. Raises the errors of `Login.logged_in`, and
    `KerberosFailure`.
    """
    token = conversation.step(b"")
    _send(connection, _START, _MECHANISM)
    _send(connection, _GOES_ON, token)
    while not conversation.is_complete:
        _send(connection, _GOES_ON, conversation.step(_received(connection, _GOES_ON)))
    offer = conversation.unwrap(_received(connection, _GOES_ON))
    if len(offer) != 4:
        raise ValueError("the metastore offers no protection")
    protection = next((kind for kind in (_ENCRYPTED, _SIGNED, _PLAIN) if offer[0] & kind), None)
    if protection is None:
        raise ValueError("the metastore offers no protection that is known")
    longest = 0 if protection == _PLAIN else 0xFFFFFF
    answer = bytes([protection]) + longest.to_bytes(3, "big")
    _send(connection, _GOES_ON, conversation.wrap(answer, encrypt=False))
    _received(connection, _COMPLETE)
    return protection


def _send(connection: Connection, state: int, content: bytes) -> None:
    connection.write(bytes([state]) + len(content).to_bytes(4, "big") + content)
    connection.flush()


def _received(connection: Connection, wanted: int) -> bytes:
    """The content of the next message of a login. Raises `KerberosFailure` if the metastore
    refuses.
    """
    state = connection.readAll(1)[0]
    content = _of_length(connection)
    if state != wanted:
        said = content[:200].decode("utf-8", "replace")
        raise KerberosFailure(f"the metastore refuses it: {said}", is_unreached=False)
    return content


def _of_length(connection: Connection) -> bytes:
    """What follows its own length."""
    size = int.from_bytes(connection.readAll(4), "big")
    if size > _LONGEST:
        raise ValueError("the metastore answers the login with what is no SASL")
    return connection.readAll(size)


class _Framed:
    """A connection after the login. What is sent and received is in frames.

    Attributes:
        conversation: what protects the frames; None if nothing does.
    """

    def __init__(
        self, connection: Connection, conversation: Conversation | None, *, encrypt: bool
    ) -> None:
        self.conversation = conversation
        self._connection = connection
        self._encrypts = encrypt
        self._requested = bytearray()
        self._answered = bytearray()

    def write(self, data: bytes) -> None:
        """Keeps a part of a request until `flush`."""
        self._requested += data

    def flush(self) -> None:
        """Sends the request."""
        for first in range(0, len(self._requested), _PIECE):
            piece = bytes(self._requested[first : first + _PIECE])
            if self.conversation is not None:
                piece = self.conversation.wrap(piece, encrypt=self._encrypts)
            self._connection.write(len(piece).to_bytes(4, "big") + piece)
        self._requested.clear()
        self._connection.flush()

    def readAll(self, size: int) -> bytes:
        """The next `size` bytes of the answer. Raises `OSError`, `EOFError`, and `ValueError`."""
        while len(self._answered) < size:
            frame = _of_length(self._connection)
            self._answered += (
                frame if self.conversation is None else self.conversation.unwrap(frame)
            )
        taken = bytes(self._answered[:size])
        del self._answered[:size]
        return taken
