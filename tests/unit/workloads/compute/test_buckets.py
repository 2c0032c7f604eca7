import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from wanbench.workloads.compute.buckets import plan_buckets, scaled_numel
from wanbench.workloads.models.resnet import resnet50_tensors
from wanbench.workloads.models.tensors import ParameterTensor

MIB = 1 << 20


def tensors(*sizes):
    return tuple(ParameterTensor(f"t{i}", (size,), float(size)) for i, size in enumerate(sizes))


def test_the_first_bucket_is_the_end_of_the_model():
    buckets = plan_buckets(tensors(10, 20, 30), cap_bytes=1)
    assert [(b.first, b.last) for b in buckets] == [(2, 2), (1, 1), (0, 0)]
    assert [(b.start, b.stop) for b in buckets] == [(30, 60), (10, 30), (0, 10)]


def test_the_tensor_that_reaches_the_cap_closes_the_bucket():
    buckets = plan_buckets(tensors(10, 10, 10, 10), cap_bytes=60)
    assert [b.nbytes for b in buckets] == [80, 80]


def test_a_bucket_that_just_reaches_the_cap_is_closed():
    assert [b.nbytes for b in plan_buckets(tensors(10, 10, 10, 10), cap_bytes=80)] == [80, 80]


def test_a_large_cap_makes_a_single_bucket():
    (bucket,) = plan_buckets(tensors(10, 20), cap_bytes=MIB)
    assert (bucket.first, bucket.last, bucket.start, bucket.stop, bucket.ready) == (0, 1, 0, 30, 1.0)


@pytest.mark.parametrize("cap_mib", [1, 5, 25, 1000])
def test_buckets_equal_those_of_distributed_data_parallel_with_an_explicit_cap(cap_mib):
    model = resnet50_tensors()
    meta = [torch.empty(t.shape, device="meta") for t in reversed(model)]
    theirs, _ = dist._compute_bucket_assignment_by_size(meta, [cap_mib * MIB])
    ours = plan_buckets(model, cap_mib * MIB)
    last = len(model) - 1
    assert [[last - i for i in bucket] for bucket in theirs] == [list(range(b.last, b.first - 1, -1)) for b in ours]


def test_a_bucket_is_ready_when_the_work_of_its_tensors_is_done():
    model = (
        ParameterTensor("first", (10,), 1.0),
        ParameterTensor("middle", (10,), 2.0),
        ParameterTensor("last", (10,), 1.0),
    )
    assert [b.ready for b in plan_buckets(model, cap_bytes=1)] == [0.25, 0.75, 1.0]


def test_scaling_changes_the_size_of_messages_but_not_their_number_or_schedule():
    full = plan_buckets(resnet50_tensors(), 25 * MIB)
    scaled = plan_buckets(resnet50_tensors(), 25 * MIB, payload_scale=0.01)
    assert [b.ready for b in scaled] == [b.ready for b in full]
    for small, large in zip(scaled, full, strict=True):
        assert small.nbytes == pytest.approx(large.nbytes / 100, abs=8)


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    st.integers(1, 100_000),
    st.floats(1e-6, 1.0),
)
def test_scaled_buckets_cover_the_scaled_vector_exactly_and_none_is_empty(sizes, cap_bytes, scale):
    model = tensors(*sizes)
    buckets = plan_buckets(model, cap_bytes, scale)
    ends = [bucket.start for bucket in buckets[:-1]]
    assert [bucket.stop for bucket in buckets[1:]] == ends
    assert buckets[0].stop == scaled_numel(model, scale)
    assert buckets[-1].start == 0
    assert all(bucket.start < bucket.stop for bucket in buckets)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), st.integers(1, 100_000))
def test_unscaled_buckets_end_where_their_tensors_end(sizes, cap_bytes):
    for bucket in plan_buckets(tensors(*sizes), cap_bytes):
        assert bucket.start == sum(sizes[: bucket.first])
        assert bucket.stop == sum(sizes[: bucket.last + 1])


def test_every_tensor_keeps_an_element_however_small_the_scale():
    assert scaled_numel(tensors(100, 100, 100), 1e-9) == 3


def test_a_cap_of_zero_is_refused():
    with pytest.raises(ValueError, match=r"^buckets: expected a cap of at least 1 byte, got 0$"):
        plan_buckets(tensors(1), 0)
