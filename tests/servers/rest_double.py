"""A server of a REST catalog in this process, for commits by the rule of Paimon 2.0 (read in its
source, not measured): a commit counts only if its `baseSnapshotUuid` is the uuid of the latest
snapshot. With `strict=False` it follows 1.4.2, as measured: an id is taken or not, and fields that
it does not know are dropped.

    with RestDouble("memory://rest") as server:
        catalog({"metastore": "rest", "uri": server.url, "warehouse": "wh", "token": server.token})
        server.faults.append("lose")        # the next commit is done, and answered 500
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from paimon_stream.storage.base import Storage
from paimon_stream.storage.uri import open_folder

TOKEN = "t0ken-never-shown"
Answer = tuple[int, Any]


def missing(kind: str, name: str) -> Answer:
    return 404, {
        "resourceType": kind,
        "resourceName": name,
        "message": f"{kind} {name} is not there",
        "code": 404,
    }


@dataclass
class Served:
    """A table of the server."""

    id: str
    path: str
    schema: dict[str, Any]
    external: bool = False
    schema_id: int = 0
    snapshots: dict[int, dict[str, Any]] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)
    """The snapshots that counted, in their order, also those that are gone since."""

    @property
    def latest(self) -> dict[str, Any] | None:
        return self.snapshots[max(self.snapshots)] if self.snapshots else None


class RestDouble:
    """Serves tables below `root`. `faults` are those of the next commits: `lose` (done, 500),
    `late` (503, and done after the next request), `503` (not done), `mute` (done, no answer), a
    pair of status and body (not done), or a function that is called before the commit.
    """

    token = TOKEN

    def __init__(self, root: str, *, strict: bool = True, files: bool = True) -> None:
        self.root, self.strict, self.files = root, strict, files
        self.databases: dict[str, dict[str, Served]] = {}
        self.defaults: dict[str, str] = {"prefix": "p", "header.x-of-server": "yes"}
        self.overrides: dict[str, str] = {}
        self.tokens: list[tuple[dict[str, str], int]] = []
        self.faults: list[Any] = []
        self.log: list[tuple[str, str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self._late: list[Any] = []
        self._lock = threading.RLock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", -1

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                answer = owner._serve(self.command, self.path, body, self.headers)
                if answer is None:
                    self.close_connection = True
                    return
                status, node = answer
                data = (
                    b""
                    if node is None
                    else node.encode()
                    if isinstance(node, str)
                    else json.dumps(node).encode()
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def options(self, **more: str) -> dict[str, str]:
        """The options of a catalog on this server."""
        given = {
            "metastore": "rest",
            "uri": self.url,
            "warehouse": "wh",
            "token.provider": "bear",
            "token": TOKEN,
        }
        return {**given, **more}

    def table(self, name: str) -> Served:
        database, _, table = name.partition(".")
        return self.databases[database][table]

    def adopt(self, name: str, path: str) -> Served:
        """Makes a table known whose first schema is there."""
        database, _, table = name.partition(".")
        schema = json.loads(open_folder(path).read("schema/schema-0"))
        made = Served(id=str(uuid.uuid4()), path=path, schema=schema)
        self.databases.setdefault(database, {})[table] = made
        return made

    def commits(self) -> list[Any]:
        """The bodies of all commits."""
        return [
            body for verb, path, body in self.log if verb == "POST" and path.endswith("/commit")
        ]

    def __enter__(self) -> RestDouble:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    # -- requests
    # -------------------------------------------------------------------------------------

    def _serve(
        self, verb: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> Answer | None:
        url = urlsplit(target)
        asked = {key: one[0] for key, one in parse_qs(url.query).items()}
        if target.endswith("/commit") and self.faults and callable(self.faults[0]):
            self.faults.pop(0)()
        with self._lock:
            self.log.append((verb, target, body))
            self.headers.append(headers)
            if headers.get("Authorization") != f"Bearer {TOKEN}":
                return 401, None
            if url.path == "/v1/config":
                return 200, {"defaults": self.defaults, "overrides": self.overrides}
            parts = [unquote(one) for one in url.path.removeprefix("/v1/p/").split("/")]
            late, self._late = self._late, []
            answer = self._answer(verb, parts, asked, body)
            for one in late:
                one()
            return answer

    def _answer(
        self, verb: str, parts: list[str], asked: dict[str, str], body: Any
    ) -> Answer | None:
        match parts:
            case ["databases"] if verb == "POST":
                if body["name"] in self.databases:
                    return 409, {"resourceType": "DATABASE", "message": "exists", "code": 409}
                self.databases[body["name"]] = {}
                return 200, None
            case ["databases"]:
                return self._page("databases", sorted(self.databases), asked)
            case ["tables", "rename"]:
                old, new = body["source"], body["destination"]
                self.databases[new["database"]][new["object"]] = self.databases[
                    old["database"]
                ].pop(old["object"])
                return 200, None
            case ["databases", name, *_] if name not in self.databases:
                return missing("DATABASE", name)
            case ["databases", name]:
                del self.databases[name]
                return 200, None
            case ["databases", name, "tables"] if verb == "POST":
                return self._create(name, body)
            case ["databases", name, "tables"]:
                return self._page("tables", sorted(self.databases[name]), asked)
            case ["databases", name, "tables", table, *rest]:
                if table not in self.databases[name]:
                    return missing("TABLE", table)
                return self._of_table(verb, self.databases[name], table, rest, body)
        return 404, None

    def _page(self, key: str, names: list[str], asked: dict[str, str]) -> Answer:
        """One name a page."""
        left = [one for one in names if one > asked.get("pageToken", "")]
        return 200, {key: left[:1], "nextPageToken": left[0] if len(left) > 1 else None}

    def _create(self, database: str, body: Any) -> Answer:
        name, schema = body["identifier"]["object"], body["schema"]
        if name in self.databases[database]:
            return 409, {"resourceType": "TABLE", "message": "exists", "code": 409}
        made = Served(id=str(uuid.uuid4()), path=f"{self.root}/{uuid.uuid4()}", schema=schema)
        self.databases[database][name] = made
        self._write_schema(made)
        return 200, None

    def _write_schema(self, table: Served) -> None:
        if self._store(table) is None:
            return
        fields = table.schema["fields"]
        node = {
            "version": 3,
            "id": table.schema_id,
            "highestFieldId": max(one["id"] for one in fields),
            **table.schema,
        }
        self._files(table).write(f"schema/schema-{table.schema_id}", json.dumps(node).encode())

    def _of_table(
        self, verb: str, tables: dict[str, Served], name: str, rest: list[str], body: Any
    ) -> Answer | None:
        table = tables[name]
        latest = table.latest
        match rest:
            case [] if verb == "DELETE":
                del tables[name]
                return 200, None
            case [] if verb == "POST":
                for change in body["changes"]:
                    assert change["action"] == "setOption"
                    table.schema["options"][change["key"]] = change["value"]
                table.schema_id += 1
                self._write_schema(table)
                return 200, None
            case []:
                return 200, {
                    "id": table.id,
                    "name": name,
                    "path": table.path,
                    "isExternal": table.external,
                    "schemaId": table.schema_id,
                    "schema": table.schema,
                }
            case ["token"]:
                given, until = self.tokens[0] if len(self.tokens) == 1 else self.tokens.pop(0)
                return 200, {"token": given, "expiresAtMillis": until}
            case ["snapshot"]:
                return (
                    missing("SNAPSHOT", "db")
                    if latest is None
                    else (200, {"snapshot": {"snapshot": latest}})
                )
            case ["snapshots", version]:
                ids = {
                    "EARLIEST": min(table.snapshots, default=0),
                    "LATEST": max(table.snapshots, default=0),
                }
                found = table.snapshots.get(ids[version] if version in ids else int(version))
                return missing("SNAPSHOT", "db") if found is None else (200, {"snapshot": found})
            case ["commit"]:
                return self._commit(table, name, body)
        return 404, None

    def _commit(self, table: Served, name: str, body: Any) -> Answer | None:
        fault = self.faults.pop(0) if self.faults else ""
        if isinstance(fault, tuple):
            return fault
        if fault == "503":
            return 503, {"message": "busy", "code": 503}
        if fault == "late":
            self._late.append(lambda: self._done(table, name, body))
            return 503, {"message": "busy", "code": 503}
        answer = self._done(table, name, body)
        return None if fault == "mute" else (500, "it broke") if fault == "lose" else answer

    def _done(self, table: Served, name: str, body: Any) -> Answer:
        if body["tableId"] != table.id:
            return missing("TABLE", name)
        latest, snapshot = table.latest, dict(body["snapshot"])
        if self.strict:
            counts = body["baseSnapshotUuid"] == (latest or {}).get("uuid")
        else:
            counts, _ = snapshot["id"] not in table.snapshots, snapshot.pop("uuid")
        counts = counts and snapshot["id"] not in table.snapshots
        if counts:
            table.snapshots[snapshot["id"]] = snapshot
            table.seen.append(snapshot)
            if self.files:
                self._files(table).put_if_absent(
                    f"snapshot/snapshot-{snapshot['id']}", json.dumps(snapshot).encode()
                )
        return 200, {"success": counts}

    def _store(self, table: Served) -> Storage | None:
        return None if table.path.startswith("s3:") else open_folder(table.path)

    def _files(self, table: Served) -> Storage:
        found = self._store(table)
        assert found is not None
        return found
