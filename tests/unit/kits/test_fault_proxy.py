"""The proxy of the tests leaves nothing behind that another test would trip over."""

from __future__ import annotations

import gc
import socket
from urllib.request import urlopen

import pytest

from tests.servers.fault_proxy import FaultProxy


def test_the_request_of_a_client_that_has_gone_is_no_garbage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        with FaultProxy(f"127.0.0.1:{server.getsockname()[1]}") as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
                upstream, _ = server.accept()
                assert upstream.recv(100).startswith(b"GET /slow")
            with urlopen(f"{proxy.url}/__proxy__/log") as answer:  # it has seen the client go
                answer.read()
            gc.collect()
        proxy.thread.join(10)
        upstream.close()
    assert caplog.messages == []
