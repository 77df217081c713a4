"""moto's server, whose conditional puts are atomic here.

moto looks whether there is an object, and then writes it, in a thread for each request. Two creates that race
may therefore both succeed, which no real store allows.
"""

from __future__ import annotations

import threading

from moto.s3.responses import S3Response
from moto.server import main

_LOCK = threading.Lock()
_put_object = S3Response.put_object


def put_object(self: S3Response) -> object:
    with _LOCK:
        return _put_object(self)


if __name__ == "__main__":
    S3Response.put_object = put_object
    main()
