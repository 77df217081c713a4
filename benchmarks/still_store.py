"""A folder of the local disk as a bucket that only reads: S3's GET, HEAD and LIST, each after a
delay.

    python benchmarks/still_store.py FOLDER PORT DELAY

The servers of the tests look at all their objects for each page of a listing. This one keeps the
keys sorted, as stores do, so a page costs what its 1,000 keys cost, and what is measured is the
client. It checks no signatures.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left, bisect_right
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_MOST = 1000
_ITEM = (
    "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>&quot;e&quot;</ETag><Size>{}</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)


class Bucket:
    """The files below a folder, under their paths."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            one.relative_to(folder).as_posix(): one for one in folder.rglob("*") if one.is_file()
        }
        self.keys = sorted(self.files)
        self.items = {key: self._item(key) for key in self.keys}

    def _item(self, key: str) -> str:
        found = self.files[key].stat()
        return _ITEM.format(escape(key), _iso(found.st_mtime), found.st_size)

    def page(self, query: dict[str, str]) -> bytes:
        """The answer to ListObjectsV2."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        at = max(bisect_left(self.keys, prefix), bisect_right(self.keys, after))
        parts: list[str] = []
        last = ""
        while (
            at < len(self.keys) and len(parts) < _MOST and (key := self.keys[at]).startswith(prefix)
        ):
            folder, found, _ = (
                key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            )
            if found:
                last = f"{prefix}{folder}{delimiter}\U0010ffff"
                parts.append(
                    f"<CommonPrefixes><Prefix>{escape(prefix + folder + delimiter)}</Prefix></CommonPrefixes>"
                )
                at = bisect_right(self.keys, last)
            else:
                last, at = key, at + 1
                parts.append(self.items[key])
        more = at < len(self.keys) and self.keys[at].startswith(prefix)
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
        text = (
            f"<ListBucketResult><Name>bucket</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(parts)}</KeyCount>"
            f"<MaxKeys>{_MOST}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(parts)}"
            "</ListBucketResult>"
        )
        return text.encode()


async def answer(
    bucket: Bucket, delay: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answers the requests of one connection."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        await asyncio.sleep(delay)
        where = urlsplit(target)
        key = unquote(where.path).removeprefix("/bucket").lstrip("/")
        stamp = ""
        if not key:
            status, body = (
                200,
                bucket.page({name: found[0] for name, found in parse_qs(where.query).items()}),
            )
        elif key in bucket.files:
            status, body = 200, bucket.files[key].read_bytes()
            stamp = f"{datetime.fromtimestamp(bucket.files[key].stat().st_mtime, timezone.utc):%a, %d %b %Y %T} GMT"
        else:
            status, body = 404, b"<Error><Code>NoSuchKey</Code></Error>"
        lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}", 'etag: "e"']
        lines += [f"last-modified: {stamp}"] if stamp else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body))
        await writer.drain()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


async def main() -> None:
    """Serves until it is ended."""
    folder, port, delay = sys.argv[1:]
    bucket = Bucket(Path(folder))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(bucket, float(delay), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
