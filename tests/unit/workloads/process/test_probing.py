"""A worker that is late for a measurement still reports every packet that arrived in time."""

from wanbench.workloads.process import probing

TRAIN = {"start_ns": 0, "packets": 40, "segment": 1, "bytes": 64, "burst": 40, "spacing_ns": 0}


def test_packets_that_wait_in_the_socket_at_the_deadline_count():
    with probing.open_listener("127.0.0.1") as listener:
        for number in (1, 2):
            probing.probe_send("127.0.0.1", [listener.getsockname()], number, [TRAIN])
        segments = probing.probe_receive(listener, number=2, expect=40, until_ns=0)["segments"]
    assert [segment[1] for segment in segments] == list(range(40))


def test_a_packet_that_arrives_once_more_is_a_copy_and_neither_late_nor_new():
    with probing.open_listener("127.0.0.1") as listener:
        for packets in (10, 40):
            probing.probe_send("127.0.0.1", [listener.getsockname()], 1, [{**TRAIN, "packets": packets}])
        segments = probing.probe_receive(listener, number=1, expect=40, until_ns=0)["segments"]
    assert [segment[1] for segment in segments] == list(range(40))
    assert [packets for *_, packets, _ in segments] == [1] * 40
    assert [copies for *_, copies in segments] == [1] * 10 + [0] * 30


def test_the_copies_of_a_segment_are_not_its_missing_packets():
    train = {**TRAIN, "packets": 40, "segment": 20}
    with probing.open_listener("127.0.0.1") as listener:
        for _ in range(2):
            probing.probe_send("127.0.0.1", [listener.getsockname()], 1, [train])
        segments = probing.probe_receive(listener, number=1, expect=80, until_ns=0)["segments"]
    assert [segment[4:] for segment in segments] == [[20, 20]] * 2
