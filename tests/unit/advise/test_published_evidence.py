"""What others published is quoted as printed, and counts only near its size, its period and its replicas."""

import pytest

from wanbench.harness.advise.published import nearest, published, similar
from wanbench.workloads.algorithms import registry

# The differences that Charles et al. print beside their losses (Tables 4 and 5), by parameters and replicas; for 4e9
# and four replicas they print +0.18 %, which is not that of 2.230 and 2.224.
PRINTED = {
    (90e6, 2): "+0.5%", (180e6, 2): "+0.3%", (550e6, 2): "+0.2%", (1.3e9, 2): "+0.2%", (1.3e9, 4): "+0.5%",
    (1.3e9, 8): "+1.3%", (2.4e9, 2): "-0.1%", (4e9, 2): "-0.18%", (10e9, 2): "-0.19%", (90e6, 4): "+1.5%",
    (180e6, 4): "+1.1%", (550e6, 4): "+0.7%", (2.4e9, 4): "+0.3%", (4e9, 4): "+0.27%", (10e9, 4): "+0.29%",
}  # fmt: skip


def test_the_differences_are_those_that_the_source_prints():
    charles = [record for record in published() if "2503.09799" in record.source]
    assert {(record.params, record.replicas) for record in charles} == PRINTED.keys()
    for record in charles:
        printed = PRINTED[record.params, record.replicas]
        step = 0.1 if len(printed) == 5 else 0.01
        assert 100 * record.excess == pytest.approx(float(printed.rstrip("%")), abs=step)  # of unrounded losses


def test_every_record_names_a_method_a_source_and_how_it_was_read():
    for record in published():
        assert record.method in registry.kinds()
        assert "arXiv" in record.source
        assert record.read in ("primary", "second-hand")
        assert bool(record.says) != bool(record.metric)
        if record.metric:
            assert record.value in str(record)
            assert record.data_parallel in str(record)
            assert record.params > 1e7
            assert record.replicas > 1
            assert record.period >= 1


def test_only_similar_sizes_the_same_period_and_enough_replicas_count():
    (own, other) = nearest("diloco", 30, 1.3e9, 2)
    assert (own.params, own.value, other.params) == (1.3e9, "2.464", 1e9)
    assert [record.replicas for record in nearest("diloco", 30, 1.3e9, 3)] == [4]
    assert nearest("diloco", 30, 1.3e9, 9) == []
    assert nearest("diloco", 50, 1.3e9, 2) == []
    assert nearest("streaming-diloco", 30, 7e9, 2) == []  # 1B is less than a third
    assert similar("diloco", 1.3e9)[0].excess == pytest.approx(21.8 / 18.8 - 1)
    assert not similar("sparseloco", 1.3e9)


def test_the_least_favourable_of_equals_is_the_first():
    first, *rest = nearest("streaming-diloco", 100, 1.3e9, 2)
    assert first.excess == max(record.excess for record in [first, *rest]) > 0
