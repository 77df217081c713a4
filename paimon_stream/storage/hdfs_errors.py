"""Failures of HDFS as this package's errors.

The name node answers with the class of a Java exception. That class decides, and without an answer,
what hdfs-native says of the connection. Only `Unavailable` leaves open whether the call took effect
(store_errors.py). Messages name the verb, the path, the class, a user without rights and advice,
never hdfs-native's text.
"""

import re
from functools import partial
from typing import Final

from paimon_stream import errors
from paimon_stream.storage.store_errors import Failure, Rule, is_panic

_denied = partial(Rule, errors.PermissionDenied)
_down = partial(Rule, errors.Unavailable)
_full = partial(Rule, errors.NoSpace)
_wrong = partial(Rule, errors.InvalidOption)
_refused = partial(Rule, errors.StorageError)

MISSING: Final = Rule(errors.NotFound, "there is no such file", "Check the table's location")
EXISTS: Final = Rule(
    errors.AlreadyExists, "it exists already", "Remove it, or write under another name"
)
LATE: Final = _down(
    "HDFS did not answer in time",
    "Check the host and the port of the name node, and the network, or allow more time",
)
_FOLDER: Final = Rule(
    errors.AlreadyExists, "a folder has this name", "Remove it, or write under another name"
)
_DENIED: Final = _denied(
    "permission denied", "Allow this user to read and write the folder (hdfs dfs -chown, -setfacl)"
)
_LOGIN: Final = _denied(
    "the name node does not accept the login",
    "Get a Kerberos ticket (kinit), and set hadoop.security.authentication as the cluster does",
)
_NAMES: Final = _full(
    "the quota of files and folders is used up",
    "Expire snapshots and remove orphan files, or raise the quota (hdfs dfsadmin -setQuota)",
)
_SPACE: Final = _full(
    "the quota of space is used up",
    "Expire snapshots and remove orphan files, or raise the quota (hdfs dfsadmin -setSpaceQuota)",
)
_CROWDED: Final = _full(
    "the folder holds as many entries as the name node allows",
    "Expire snapshots and remove orphan files, or raise dfs.namenode.fs-limits.max-directory-items",
)
_SAFE_MODE: Final = _down(
    "the name node is in safe mode", "Wait for its end, or see why (hdfs dfsadmin -safemode get)"
)
_STANDBY: Final = _down(
    "no name node is active", "Check the name nodes (hdfs haadmin -getAllServiceState)"
)
_LEASE: Final = _down("the name node closed the file while it was written", "Try again")
_LONG: Final = _refused(
    "the path, or a name in it, is longer than the name node allows",
    "Use shorter names (dfs.namenode.fs-limits.max-component-length)",
)
_NO_PATH: Final = _wrong(
    "HDFS does not allow the name",
    "Use another name; a name in HDFS has no colon, and .snapshot is its own",
)
_NO_FOLDER: Final = Rule(
    errors.AlreadyExists,
    "a file is where a folder is needed",
    "Remove that file, or use another location",
)
_SNAPSHOT: Final = _refused(
    "a snapshot of HDFS holds it", "Delete the snapshot (hdfs dfs -deleteSnapshot)"
)
_NO_NODES: Final = _wrong(
    "its name service is not known",
    "Set HADOOP_CONF_DIR to a folder with core-site.xml and hdfs-site.xml, or give "
    "hdfs://host:port/path",
)
_NO_DATA_NODES: Final = _down(
    "no data node can take or give the content",
    "Check that data nodes run, can be reached from here and have free space (hdfs dfsadmin -report)",
)
_UNSUPPORTED: Final = Rule(
    errors.UnsupportedFeature, "hdfs-native does not support it", "Use a folder without it"
)
_BROKEN: Final = _down("the connection broke", "Check the network and the name node, and try again")
_FAILED: Final = _down("HDFS failed", "See the name node's log, and try again")
_NO_HOST: Final = _down("the host of the name node is unknown", "Check the location")
_NOBODY: Final = _down(
    "a node refuses connections",
    "Check the host and the port of the name node, and that data nodes run (hdfs dfsadmin -report)",
)
_TICKET: Final = _down("the Kerberos login failed", "Renew the ticket (kinit)")

_BY_CLASS: Final[dict[str, Rule]] = {
    "FileNotFoundException": MISSING,
    **dict.fromkeys(("FileAlreadyExistsException", "AlreadyBeingCreatedException"), EXISTS),
    **dict.fromkeys(("AccessControlException", "SnapshotAccessControlException"), _DENIED),
    **dict.fromkeys(("AuthorizationException", "SaslException", "InvalidToken"), _LOGIN),
    **dict.fromkeys(("NSQuotaExceededException", "QuotaExceededException"), _NAMES),
    **dict.fromkeys(("DSQuotaExceededException", "QuotaByStorageTypeExceededException"), _SPACE),
    "MaxDirectoryItemsExceededException": _CROWDED,
    **dict.fromkeys(("SafeModeException", "RetriableException"), _SAFE_MODE),
    **dict.fromkeys(("StandbyException", "NoNamenodesAvailableException"), _STANDBY),
    **dict.fromkeys(("LeaseExpiredException", "RecoveryInProgressException"), _LEASE),
    "PathComponentTooLongException": _LONG,
    **dict.fromkeys(("InvalidPathException", "HadoopIllegalArgumentException"), _NO_PATH),
    "ParentNotDirectoryException": _NO_FOLDER,
    "SnapshotException": _SNAPSHOT,
    "NotReplicatedYetException": _NO_DATA_NODES,
}
_BELOW_A_FILE: Final = "is not a directory"
_BY_TEXT: Final = (
    ("No NameNode hosts found", _NO_NODES),
    ("No host for name service", _NO_NODES),
    ("minReplication nodes", _NO_DATA_NODES),
    ("must both be directories", _FOLDER),  # of a rename, of a file to a folder's name
    ("exceeds the limit", _LONG),
    ("Pathname too long", _LONG),
    ("Connection refused", _NOBODY),
    ("failed to lookup address", _NO_HOST),
)
_BY_VARIANT: Final = {
    **dict.fromkeys(("BlocksNotFound", "DataTransferError", "ChecksumError"), _NO_DATA_NODES),
    **dict.fromkeys(("SASLError", "GSSAPIError", "NoSASLMechanism"), _LOGIN),
    **dict.fromkeys(("UnsupportedFeature", "UnsupportedErasureCodingPolicy"), _UNSUPPORTED),
    **dict.fromkeys(("InvalidPath", "UrlParseError"), _NO_PATH),
    "XmlParseError": _wrong(
        "a file of Hadoop's configuration is no XML", "Mend core-site.xml and hdfs-site.xml"
    ),
}
"""By the variant of hdfs-native's own errors."""
_BY_TYPE: Final = (
    (FileNotFoundError, MISSING),
    (IsADirectoryError, MISSING),
    (FileExistsError, EXISTS),
    (NotImplementedError, _UNSUPPORTED),
    (PermissionError, _LOGIN),
)
_RPC: Final = re.compile(r'(?:Fatal)?RPCError\("([\w.$]{1,200})"')
_USER: Final = re.compile(r"Permission denied: user=([^\s,\"\\]{1,255}), access=")
"""The user whom the name node has seen: with Kerberos or a token, no setting names him."""
_VARIANT: Final = re.compile(r"([A-Z][A-Za-z]+)")


class Late(OSError):
    """A call that has not ended before its deadline."""


def failure_of(failed: BaseException, *, right: bool) -> Failure:
    """What the error of a call means, without its text. `right` says whether HDFS has done before
    what it was asked: then a login that fails is taken for an outage, because the ticket may be
    renewed. Of the text, only the name of a user who may not do it is kept.
    """
    text = str(failed)
    rpc = _RPC.match(text)
    code = re.split(r"[.$]", rpc[1])[-1] if rpc else None
    rule = _rule(failed, text, code)
    if rule is _LOGIN and right:
        rule = _TICKET
    user = _USER.search(text) if rule is _DENIED else None
    if user is not None:
        rule = rule._replace(reason=f"permission denied to the user {user[1]}")
    is_named = rule not in (MISSING, EXISTS, _FOLDER, _FAILED)
    answered = rpc is not None or rule in (MISSING, EXISTS)
    return Failure(
        rule=rule,
        status=None,
        code=code if is_named or rule is _FAILED else None,
        answered=answered,
    )


def _rule(failed: BaseException, text: str, code: str | None) -> Rule:
    """The first rule that fits."""
    if isinstance(failed, Late):
        return LATE
    if _BELOW_A_FILE in text:  # the name node says that it may not look into the file
        return _NO_FOLDER
    if code in _BY_CLASS:
        return _BY_CLASS[code]
    for mark, rule in _BY_TEXT:
        if mark in text:
            return rule
    for kind, rule in _BY_TYPE:
        if isinstance(failed, kind):
            return rule
    if code is not None or is_panic(failed):
        return _FAILED
    variant = _VARIANT.match(text)
    return _BY_VARIANT.get(variant[1] if variant else "", _BROKEN)
