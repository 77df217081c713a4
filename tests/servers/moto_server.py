"""moto's server, whose conditional puts and listings are atomic here.

moto looks whether there is an object, and then writes it, in a thread for each request. Two creates
that race may therefore both succeed, which no real store allows. A listing beside a put or a
deletion may end with 500.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from moto.s3.models import S3Backend
from moto.s3.responses import S3Response
from moto.server import main

_LOCK = threading.RLock()


def alone(do: Callable[..., Any]) -> Callable[..., Any]:
    """The same, while no other of them is done."""

    @wraps(do)
    def locked(*args: Any, **named: Any) -> Any:
        with _LOCK:
            return do(*args, **named)

    return locked


if __name__ == "__main__":
    S3Response.put_object = alone(S3Response.put_object)
    for change in ("put_object", "delete_object", "complete_multipart_upload", "list_objects"):
        setattr(S3Backend, change, alone(getattr(S3Backend, change)))
    main()
