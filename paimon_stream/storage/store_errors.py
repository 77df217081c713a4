"""Failures of object stores as this package's errors.

The first rule that fits decides: the error code in the store's answer, the HTTP status, and,
without an answer, what the client says of the connection. A login that is refused is known by its
text, whatever its status. Only `Unavailable` and `AlreadyExists` leave open whether the operation
took effect. Every other error proves that it did not (stores.md §5). Messages name the verb,
location, path, status, code and advice, never a URL, headers, a body or a setting, because those
may hold secrets.
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from paimon_stream import errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a store, for messages.

    Attributes:
        verb: "read", "list", "write", "create" or "delete".
        location: the root.
        path: relative to the root, and "" for the root itself.
    """

    verb: str
    location: str
    path: str

    @property
    def full(self) -> str:
        """The location of the file or folder."""
        return f"{self.location}/{self.path}" if self.path else self.location


class Rule(NamedTuple):
    """What a kind of failure means.

    Attributes:
        kind: the error.
        reason: why the request failed.
        advice: what to do.
    """

    kind: type[errors.PaimonStreamError]
    reason: str
    advice: str


_denied = partial(Rule, errors.PermissionDenied)
_wrong = partial(Rule, errors.InvalidOption)
_down = partial(Rule, errors.Unavailable)
_DENIED: Final = _denied(
    "permission denied",
    "Allow these credentials to list, read, write and delete objects below the location",
)
_REFUSED: Final = _wrong("the store refuses it", "Check the endpoint and the storage options")
_BUCKET: Final = _wrong(
    "there is no such bucket or container", "Create it, or correct the location or the endpoint"
)
_REGION: Final = _denied(
    "the bucket is in another region", "Give the bucket's region, or its endpoint"
)
_EXPIRED: Final = _denied(
    "the credentials have expired",
    "Give new ones, or a source of credentials that renews them (a profile or a role)",
)
_KEY: Final = _denied("the store does not know these credentials", "Correct the key and its secret")
_FULL: Final = Rule(
    errors.NoSpace, "the store or the quota is full", "Free space or raise the quota, and try again"
)
_CLOCK: Final = _denied(
    "the clock of this machine is more than 15 minutes wrong", "Set the clock, and try again"
)
_ENCRYPTION: Final = _denied(
    "the key of the bucket's encryption cannot be used",
    "Enable the key, and allow these credentials to use it",
)
_UNSUPPORTED: Final = _wrong("the store does not support the request", "Use a store that does")
_NO_RANGE: Final = _wrong("the store does not serve a range of bytes", "Use a store that does")
_NO_PATH: Final = _wrong("no object can have this name", "Use another name")
_SLOW: Final = _down("the store failed", "Try again")
_MISSING: Final = Rule(errors.NotFound, "there is no such file", "Check the table's location")
_CONFLICT: Final = Rule(
    errors.AlreadyExists,
    "it exists already, or is being changed",
    "Remove it, or write under another name",
)
TIMED_OUT: Final = _down("the store did not answer in time", "Check the network or allow more time")

_BY_CODE: Final[dict[str, Rule]] = {
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound"), _BUCKET),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"), _EXPIRED),
    **dict.fromkeys(
        ("InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "AuthenticationFailed"),
        _KEY,
    ),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
    **dict.fromkeys(
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"), _REGION
    ),
    **dict.fromkeys(
        ("EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"), _FULL
    ),
    **dict.fromkeys(("RequestTimeout", "IncompleteBody", "NoSuchUpload"), _SLOW),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem"), _DENIED),
}
_BY_STATUS: Final[dict[int, Rule]] = {
    301: _REGION,
    307: _REGION,
    308: _REGION,
    401: _DENIED,
    403: _DENIED,
    408: _SLOW,
    425: _SLOW,
    429: _SLOW,
    409: _CONFLICT,
    412: _CONFLICT,
    416: _NO_RANGE,
    501: _UNSUPPORTED,
    507: _FULL,
}
_BY_TEXT: Final = (
    ("Received redirect without LOCATION", _REGION),
    ("non-partial response", _NO_RANGE),
    ("invalid_grant", _KEY),
    ("invalid_client", _KEY),
    ("BadScheme", _wrong("its endpoint has no TLS", "Give an https endpoint, or allow http")),
    (
        "InvalidContentType",
        _wrong("its endpoint does not speak TLS", "Give it with http://, or give one that has TLS"),
    ),
    (
        "invalid peer certificate",
        _down("the endpoint's certificate is not trusted", "Give the certificate of its authority"),
    ),
    ("dns error", _down("its host name is unknown", "Check the endpoint and the region")),
    ("Connection refused", _down("nothing answers at its endpoint", "Check the endpoint")),
    ("kind: Timeout", TIMED_OUT),
)
_BY_NAME: Final = {
    "AlreadyExistsError": _CONFLICT,
    "FileNotFoundError": _MISSING,
    "PermissionDeniedError": _DENIED,
    "UnauthenticatedError": _DENIED,
    "NotSupportedError": _UNSUPPORTED,
    "NotImplementedError": _UNSUPPORTED,
    "InvalidPathError": _NO_PATH,
    "ValueError": _NO_PATH,
    "PanicException": _down(
        "its answer cannot be understood", "Check that the endpoint speaks the store's protocol"
    ),
}
BROKEN: Final = _down("the connection broke", "Check the network and try again")
NO_CREDENTIALS: Final = _denied(
    "no credentials were found, and no role of this machine gives any",
    "Give credentials in the storage options or the environment",
)
NO_ROLE: Final = _down("the role of this machine gives no credentials", "Try again")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>|\(code: ([A-Za-z0-9.]{1,64})\)")
_ROLE: Final = re.compile(
    r"Error performing [A-Z]+ http://(169\.254\.\d+\.\d+|metadata\.google\.internal)[:/]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What the error of a request means.

    Attributes:
        rule: the kind of failure.
        status: the HTTP status, if there was an answer.
        code: the error code in the answer, if it has one.
        answered: whether the store itself gave an answer.
    """

    rule: Rule
    status: int | None
    code: str | None
    answered: bool

    @property
    def may_be_of_old_credentials(self) -> bool:
        """Whether credentials that were renewed may help. An answer to HEAD has no code, so its
        status decides.
        """
        is_denied_without_code = self.code is None and self.status in (400, 401, 403)
        return is_denied_without_code or self.rule in (_EXPIRED, _KEY)

    def error(self, request: Request, addition: str = "") -> errors.PaimonStreamError:
        """The error to raise. `addition` is a further sentence of its message."""
        rule = self.rule
        if rule is _MISSING and request.verb not in ("read", "delete"):
            # No other verb needs an object, so it is the bucket that is missing.
            rule = _BUCKET
        kind = rule.kind
        if rule is _UNSUPPORTED and request.verb == "create":
            kind = errors.NotAtomic
        answer = " ".join(str(part) for part in (self.status, self.code) if part)
        shown_answer = f" ({answer})" if answer else ""
        message = (
            f"Cannot {request.verb} {request.full}: {rule.reason}{shown_answer}. {rule.advice}."
        )
        return kind(
            f"{message} {addition}".rstrip(),
            path=request.full,
            status=self.status,
            code=self.code,
        )


def is_panic(failed: BaseException) -> bool:
    """Whether the error is a panic of obstore: it met what its authors did not expect, such as an
    answer about other files than those of the request. A panic is no `Exception`, and its class
    cannot be imported.
    """
    return type(failed).__name__ == "PanicException"


def failure_of(failed: BaseException) -> Failure:
    """What obstore's error means, without its text."""
    text = str(failed)
    status_in_text = _STATUS.search(text)
    status = int(status_in_text[1]) if status_in_text else None
    code_in_text = _CODE.search(text)
    code = (code_in_text[1] or code_in_text[2]) if code_in_text else None
    if code is not None and code.isdigit():
        # The answer to one of several deletions of Azure has its status here.
        status = int(code)
        code = None
    if _ROLE.search(text):
        # The failed request was to the service of this machine that gives credentials.
        return Failure(rule=NO_CREDENTIALS, status=None, code=None, answered=False)
    rule = _rule(status, code, text, type(failed).__name__)
    return Failure(rule=rule, status=status, code=code, answered=status is not None)


def _rule(status: int | None, code: str | None, text: str, name: str) -> Rule:
    """The first rule that fits. `name` is the class of obstore's error, `text` its text."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code is not None and code.startswith("KMS."):
        return _ENCRYPTION
    if status == 404:
        return _BUCKET if "container does not exist" in text else _MISSING
    for mark, rule in _BY_TEXT:
        if mark in text and (status is None or rule is _KEY):
            return rule
    if status is None:
        return _BY_NAME.get(name, BROKEN)
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return _SLOW if status >= 500 else _REFUSED
