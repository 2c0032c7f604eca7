"""The connections that a process has: their congestion control and windows."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from wanbench.workloads.process.training import congestion_in_use, congestion_windows


def test_connections_are_found_among_all_descriptors_and_none_stays_open(tmp_path):
    with (
        (tmp_path / "file").open("w"),
        socket.create_server(("127.0.0.1", 0)) as server,
        contextlib.closing(os.fdopen(os.eventfd(0), "rb", buffering=0)),
        socket.create_connection(server.getsockname()) as near,
    ):
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        before = os.listdir("/proc/self/fd")
        assert congestion_in_use() == {"reno"}
        assert congestion_windows() == 10  # the initial window of Linux
        assert os.listdir("/proc/self/fd") == before


def test_a_connection_that_another_thread_closes_meanwhile_is_left_out(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        is_socket, closed = Path.is_socket, str(near.fileno())

        def closed_after(path):
            found = is_socket(path)
            if path.name == closed:
                near.close()
            return found

        monkeypatch.setattr(Path, "is_socket", closed_after)
        assert congestion_in_use() == set()
