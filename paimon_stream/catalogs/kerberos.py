"""Kerberos, by MIT's `libgssapi_krb5.so.2`: a secured conversation with a server (RFC 2743, RFC 4121).

The library is called directly. The packages of PyPI that wrap it have no wheels for Linux, and need a
compiler and its headers. The client of HDFS, hdfs-native, loads the same library.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from paimon_stream import errors

_LIBRARY: Final = "libgssapi_krb5.so.2"
_KERBEROS: Final = bytes.fromhex("2a864886f712010202")
"""The mechanism 1.2.840.113554.1.2.2."""
_PRINCIPAL: Final = bytes.fromhex("2a864886f71201020201")
"""The kind of a name that is a whole principal, `user/host@REALM`: 1.2.840.113554.1.2.2.1."""
_INITIATE: Final = 1
_FLAGS: Final = 2 | 4 | 8 | 16 | 32
"""Both sides prove who they are; nothing is repeated or out of order; signed; encrypted."""
_CONTINUE: Final = 1
_ERROR: Final = 0xFFFF0000
"""The bits of a status that say that a call has failed."""
_OF_GSSAPI: Final = 1
_OF_MECHANISM: Final = 2
_UNREACHED: Final = -1765328228 & 0xFFFFFFFF
"""The status of Kerberos if no server of the realm (KDC) can be reached."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", ctypes.c_size_t), ("value", ctypes.c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("elements", ctypes.c_char_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", ctypes.c_size_t), ("elements", ctypes.POINTER(_Oid)))


class _Pair(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class _Pairs(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint32), ("elements", ctypes.POINTER(_Pair)))


class KerberosFailure(Exception):
    """Kerberos did not do what was asked. The message is the library's text.

    Attributes:
        is_unreached: whether no server of the realm could be reached.
    """

    def __init__(self, text: str, is_unreached: bool) -> None:
        super().__init__(text)
        self.is_unreached = is_unreached


class Conversation:
    """A secured conversation with a server. It is closed when its context ends.

    Attributes:
        is_complete: whether both sides know each other.
    """

    def __init__(self, server: str, keys: Mapping[str, str]) -> None:
        """Prepares the conversation. Nothing is sent.

        Args:
            server: the principal of the server.
            keys: the `principal` and the `keytab` of the user. If it is empty, the user is that of
                the cache of tickets or of `KRB5_CLIENT_KTNAME`.

        Raises:
            KerberosFailure: there is no such principal, or its keytab cannot be used.
            UnsupportedFeature: the library is not installed.
        """
        self.is_complete = False
        self._context = ctypes.c_void_p()
        self._user = ctypes.c_void_p()
        self._server = ctypes.c_void_p()
        self._mechanism = _Oid(len(_KERBEROS), _KERBEROS)
        try:
            self._server = self._name(server)
            if keys:
                self._user = self._credentials(keys["principal"], keys["keytab"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what the library holds."""
        minor = ctypes.c_uint32()
        for release, held, *more in (
            (_library().gss_delete_sec_context, self._context, None),
            (_library().gss_release_cred, self._user),
            (_library().gss_release_name, self._server),
        ):
            if held:
                release(ctypes.byref(minor), ctypes.byref(held), *more)

    def step(self, token: bytes) -> bytes:
        """The answer to a token of the server, which is empty at first. Raises `KerberosFailure`."""
        received = _buffer(token)
        answer = _Buffer()
        major = self._call(
            "gss_init_sec_context",
            self._user,
            ctypes.byref(self._context),
            self._server,
            ctypes.byref(self._mechanism),
            ctypes.c_uint32(_FLAGS),
            ctypes.c_uint32(0),
            None,
            ctypes.byref(received),
            None,
            ctypes.byref(answer),
            None,
            None,
        )
        self.is_complete = not major & _CONTINUE
        return _taken(answer)

    def wrap(self, data: bytes, *, encrypt: bool) -> bytes:
        """The data, signed or encrypted for the server. Raises `KerberosFailure`."""
        plain = _buffer(data)
        wrapped = _Buffer()
        is_encrypted = ctypes.c_int()
        self._call(
            "gss_wrap",
            self._context,
            ctypes.c_int(encrypt),
            ctypes.c_uint32(0),
            ctypes.byref(plain),
            ctypes.byref(is_encrypted),
            ctypes.byref(wrapped),
        )
        result = _taken(wrapped)
        if encrypt and not is_encrypted.value:
            raise KerberosFailure("the data was not encrypted", is_unreached=False)
        return result

    def unwrap(self, data: bytes) -> bytes:
        """What the server has signed or encrypted. Raises `KerberosFailure`."""
        wrapped = _buffer(data)
        plain = _Buffer()
        self._call(
            "gss_unwrap", self._context, ctypes.byref(wrapped), ctypes.byref(plain), None, None
        )
        return _taken(plain)

    def _name(self, principal: str) -> ctypes.c_void_p:
        text = _buffer(principal.encode())
        name = ctypes.c_void_p()
        kind = _Oid(len(_PRINCIPAL), _PRINCIPAL)
        self._call("gss_import_name", ctypes.byref(text), ctypes.byref(kind), ctypes.byref(name))
        return name

    def _credentials(self, principal: str, keytab: str) -> ctypes.c_void_p:
        """Those of a principal by its keytab. Its tickets are kept in memory, for all conversations
        of the process, and the library renews them.
        """
        kept = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:{principal} {keytab}"}
        pairs = (_Pair * len(kept))(
            *(_Pair(key.encode(), text.encode()) for key, text in kept.items())
        )
        mechanisms = _OidSet(1, ctypes.pointer(self._mechanism))
        name = self._name(principal)
        credentials = ctypes.c_void_p()
        try:
            self._call(
                "gss_acquire_cred_from",
                name,
                ctypes.c_uint32(0),
                ctypes.byref(mechanisms),
                ctypes.c_int(_INITIATE),
                ctypes.byref(_Pairs(len(kept), pairs)),
                ctypes.byref(credentials),
                None,
                None,
            )
        finally:
            _library().gss_release_name(ctypes.byref(ctypes.c_uint32()), ctypes.byref(name))
        return credentials

    def _call(self, function: str, *arguments: Any) -> int:
        """Calls a function of the library. Returns its status. Raises `KerberosFailure`."""
        minor = ctypes.c_uint32()
        major: int = getattr(_library(), function)(ctypes.byref(minor), *arguments)
        if major & _ERROR:
            texts = self._texts(major, _OF_GSSAPI)
            if minor.value:
                texts = self._texts(minor.value, _OF_MECHANISM) or texts
            raise KerberosFailure(texts, is_unreached=minor.value == _UNREACHED)
        return major

    def _texts(self, status: int, kind: int) -> str:
        """What the library says about a status."""
        texts: list[str] = []
        more = ctypes.c_uint32()
        minor = ctypes.c_uint32()
        while True:
            text = _Buffer()
            failed = _library().gss_display_status(
                ctypes.byref(minor),
                ctypes.c_uint32(status),
                ctypes.c_int(kind),
                ctypes.byref(self._mechanism),
                ctypes.byref(more),
                ctypes.byref(text),
            )
            if failed:
                return "; ".join(texts)
            texts.append(_taken(text).decode("utf-8", "replace"))
            if not more.value:
                return "; ".join(texts)


@cache
def _library() -> Any:
    """MIT's library. Raises `UnsupportedFeature` if it is not installed."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise errors.UnsupportedFeature(
            f"A login with Kerberos needs MIT's library {_LIBRARY} on Linux, which cannot be loaded. "
            "Install libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (Red Hat).",
            module=_LIBRARY,
        ) from None
    for function in (
        *("gss_import_name", "gss_acquire_cred_from", "gss_init_sec_context", "gss_wrap"),
        *("gss_unwrap", "gss_display_status"),
    ):
        getattr(library, function).restype = ctypes.c_uint32
    return library


def _buffer(data: bytes) -> _Buffer:
    """The data for the library. The object keeps the data alive."""
    return _Buffer(len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p))


def _taken(buffer: _Buffer) -> bytes:
    """The data that the library has made. The library frees its own memory."""
    data = ctypes.string_at(buffer.value, buffer.length) if buffer.length else b""
    _library().gss_release_buffer(ctypes.byref(ctypes.c_uint32()), ctypes.byref(buffer))
    return data
