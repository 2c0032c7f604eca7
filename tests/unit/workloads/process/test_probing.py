"""A worker that is late for a measurement still reports every packet that arrived in time."""

from wanbench.workloads.process import probing

TRAIN = {"start_ns": 0, "packets": 40, "segment": 1, "bytes": 64, "burst": 40, "spacing_ns": 0}


def test_packets_that_wait_in_the_socket_at_the_deadline_count():
    with probing.open_listener("127.0.0.1") as listener:
        for number in (1, 2):
            probing.probe_send("127.0.0.1", [listener.getsockname()], number, [TRAIN])
        segments = probing.probe_receive(listener, number=2, expect=40, until_ns=0)["segments"]
    assert [sequence for _, sequence, _, _, _ in segments] == list(range(40))
