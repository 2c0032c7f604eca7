"""Compressors: what they send, how many bytes it costs, and that nothing is lost."""

from __future__ import annotations

import math

import pytest
import torch

from wanbench.workloads.comm.base import Phantom, nbytes_of
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.compression import registry
from wanbench.workloads.compression.averaging import Averager
from wanbench.workloads.compression.base import CompressorError
from wanbench.workloads.compression.bits import pack, packed_bytes, unpack
from wanbench.workloads.compression.chunktopk import ChunkTopK
from wanbench.workloads.compression.dgc import DGC
from wanbench.workloads.compression.powersgd import PowerSGD
from wanbench.workloads.compression.qsgd import QSGD, TernGrad
from wanbench.workloads.compression.signsgd import SignSGD
from wanbench.workloads.compression.topk import TopK

SHAPES = ((8, 10), (10,), (3, 4, 5))
NUMEL = 150
SETTINGS = {
    "none": "none",
    "topk": {"kind": "topk", "ratio": 0.1},
    "chunk-topk": {"kind": "chunk-topk", "chunk": 40, "kept": 5},
    "dgc": {"kind": "dgc", "ratio": 0.1},
    "chunkwise": {"kind": "chunkwise", "ratio": 0.07},
    "randomk": {"kind": "randomk", "ratio": 0.1},
    "powersgd": {"kind": "powersgd", "rank": 1},
    "signsgd": "signsgd",
    "qsgd": "qsgd",
    "terngrad": "terngrad",
    "fp16": "fp16",
    "bf16": "bf16",
}


def vectors(rank, count, numel=NUMEL, dtype=torch.float64):
    random = torch.Generator().manual_seed(1 + rank)
    return torch.randn(count, numel, generator=random, dtype=dtype)


def averaged(setting, count, *, workers=3, in_flight=1, shapes=SHAPES, given=vectors):
    """Return, per rank, means and contributions of shape (count, numel), the residual, and the vectors."""

    def body(comm):
        mine = given(comm.rank, count)
        averager = Averager(registry.create(setting), comm, mine[0], shapes=shapes, seed=5)
        means, sent, under_way = [], [], []
        for v in mine:
            copy = v.clone()
            under_way.append(averager.begin(copy))
            copy.fill_(torch.nan)  # the vector can be changed again
            if len(under_way) == in_flight:
                exchange = under_way.pop(0)
                means.append(exchange.wait().clone())
                sent.append(exchange.own.clone())
                averager.done(exchange)
        for exchange in under_way:
            means.append(exchange.wait().clone())
            sent.append(exchange.own.clone())
        residual = torch.zeros(mine.shape[1]) if averager.residual is None else averager.residual
        return torch.stack(means), torch.stack(sent), residual, mine

    return run_replicas(workers, body)


def test_every_compressor_is_tested():
    assert set(SETTINGS) == {"none", *registry.kinds()}


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_mean_of_the_values_sent_has_the_same_bits_on_every_rank(name, in_flight):
    ranks = averaged(SETTINGS[name], 8, in_flight=in_flight)
    sent = torch.stack([rank[1] for rank in ranks]).mean(dim=0)
    # A mean in a half type is rounded to it.
    tolerance = {"fp16": 2e-3, "bf16": 2e-2}.get(name, 1e-12)
    for means, *_ in ranks:
        torch.testing.assert_close(means, sent, rtol=tolerance, atol=tolerance)
        assert torch.equal(means, ranks[0][0])


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in {"qsgd", "terngrad"}])
def test_values_sent_plus_residual_equal_the_input(name, in_flight):
    for _, sent, residual, mine in averaged(SETTINGS[name], 20, in_flight=in_flight):
        torch.testing.assert_close(sent.sum(dim=0) + residual, mine.sum(dim=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in {"none", "qsgd", "terngrad"}])
def test_the_first_message_is_incomplete_and_leaves_a_residual(name):
    assert all(float(residual.abs().max()) > 1e-5 for _, _, residual, _ in averaged(SETTINGS[name], 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_bytes_of_a_phantom_are_those_of_a_tensor(name, dtype):
    def body(comm):
        counted = []
        tensor = vectors(comm.rank, 1, dtype=dtype)[0]
        for v in (tensor, Phantom(NUMEL, tensor.element_size())):
            metered = MeteredComm(comm, MonotonicClock())
            averager = Averager(registry.create(SETTINGS[name]), metered, v, shapes=SHAPES)
            averager.begin(v).wait()
            counted.append((metered.payload_bytes, metered.messages_sent, averager.rounds))
        return counted

    for real, phantom in run_replicas(2, body):
        assert real == phantom


@pytest.mark.parametrize(
    ("setting", "nbytes"),
    [
        ({"kind": "topk", "ratio": 0.1}, 15 * (4 + 4)),
        ({"kind": "topk", "ratio": 0.001}, 8),
        # four chunks with five indices of six bits, five codes and two magnitudes each
        ({"kind": "chunk-topk", "chunk": 40, "kept": 5}, 15 + 5 + 4 * 8),
        ({"kind": "chunk-topk", "chunk": 40, "kept": 5, "quantised": False}, 15 + 4 * 5 * 4),
        ({"kind": "chunk-topk", "chunk": 4096, "kept": 64}, 64 + 16 + 8),  # one chunk of 150, indices of eight bits
        ({"kind": "dgc", "ratio": 0.1}, 15 * (4 + 4)),
        ({"kind": "randomk", "ratio": 0.1}, 15 * 4),
        ({"kind": "chunkwise", "ratio": 0.1}, 15 * 4),
        ("signsgd", 4 + math.ceil(150 / 8)),
        ({"kind": "qsgd", "levels": 1}, 4 + math.ceil(150 * 2 / 8)),
        ({"kind": "qsgd", "levels": 7}, 4 + 75),
        ({"kind": "qsgd", "levels": 8, "bucket": 50}, 3 * 4 + 150),
        ("terngrad", 4 + math.ceil(150 * 2 / 8)),
        ("fp16", 300),
        # (8 + 10) and 10 values whole, (3 + 20) : twice as few as 80 and 60
        ({"kind": "powersgd", "rank": 1}, 4 * (18 + 10 + 23)),
    ],
    ids=str,
)
def test_values_indices_scales_and_factors_all_count(setting, nbytes):
    messages = registry.create(setting).messages(NUMEL, SHAPES)
    assert sum(map(nbytes_of, messages)) == nbytes


# ---------------------------------------------------------------- one by one


def test_top_k_with_ratio_one_is_the_identity():
    for means, sent, residual, mine in averaged({"kind": "topk", "ratio": 1}, 3):
        assert torch.equal(sent, mine)
        assert not residual.any()
        torch.testing.assert_close(means, torch.stack([vectors(rank, 3) for rank in range(3)]).mean(dim=0))


def test_top_k_keeps_the_largest_magnitudes():
    v = torch.tensor([0.1, -5.0, 2.0, 0.0, -3.0])
    topk = TopK(ratio=0.4)
    assert topk.decode(topk.encode(v), v).tolist() == [0.0, -5.0, 0.0, 0.0, -3.0]


def test_chunks_are_sent_in_turn_and_every_element_arrives():
    ones = lambda rank, count: torch.ones(count, 10)  # noqa: E731
    (_, sent, residual, _), *_ = averaged({"kind": "chunkwise", "ratio": 0.25}, 4, shapes=(), given=ones)
    assert [row.nonzero().view(-1).tolist() for row in sent] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [7, 8, 9]]
    assert sent[2].tolist() == [0, 0, 0, 0, 0, 0, 3, 3, 3, 0]
    assert residual.tolist() == [3, 3, 3, 2, 2, 2, 1, 0, 0, 0]


def test_random_elements_are_equal_on_all_ranks_and_change_each_time():
    ranks = averaged({"kind": "randomk", "ratio": 0.1}, 5)
    places = [[row.nonzero().view(-1).tolist() for row in sent] for _, sent, *_ in ranks]
    assert places[0] == places[1] == places[2]
    assert len({tuple(place) for place in places[0]}) == 5
    assert {len(place) for place in places[0]} == {15}


def test_sign_sgd_sends_the_mean_magnitude_and_the_signs():
    v = torch.tensor([1.0, -3.0, 0.0, 4.0, -2.0])
    assert SignSGD().decode(SignSGD().encode(v), v).tolist() == [2.0, -2.0, 2.0, 2.0, -2.0]


@pytest.mark.parametrize("numel", [1, 40, 41, 150])
def test_two_bit_chunks_never_enlarge_the_residual(numel):
    """Not even with an outlier beside small values, which levels at fixed shares of the largest would enlarge."""
    v = vectors(0, 1, numel)[0]
    v[0] = 1e6
    chunked = ChunkTopK(chunk=40, kept=10)
    kept = chunked.decode(chunked.encode(v), v)
    assert int((kept != 0).sum()) <= 10 * math.ceil(numel / 40)
    assert float((v - kept).norm()) <= float(v.norm())
    small = v[kept != 0][1:]
    assert float((small - kept[kept != 0][1:]).norm()) <= float(small.norm()) * (1 + 1e-6)


def test_signs_and_two_magnitudes_of_each_chunk_travel():
    v = torch.tensor([1.0, -8, 3, 0.5, 4, -1, 2, 0.25])
    chunked = ChunkTopK(chunk=4, kept=3)
    assert chunked.decode(chunked.encode(v), v).tolist() == [2.0, -8.0, 2.0, 0.0, 4.0, -1.5, 1.5, 0.0]


def by_definition(v, chunk, kept):
    """C(v) of each chunk by itself, in plain Python."""
    result = []
    for begin in range(0, len(v), chunk):
        part = v[begin : begin + chunk]
        chosen = sorted(range(len(part)), key=lambda i: -abs(part[i]))[:kept]
        mean = math.fsum(abs(part[i]) for i in chosen) / len(chosen)
        classes = [[i for i in chosen if (abs(part[i]) > mean) == large] for large in (False, True)]
        sent = [0.0] * len(part)
        for members in filter(None, classes):
            magnitude = math.fsum(abs(part[i]) for i in members) / len(members)
            for i in members:
                sent[i] = math.copysign(magnitude, part[i])
        result += sent
    return result


@pytest.mark.parametrize("last", range(1, 12))
def test_a_short_last_chunk_is_judged_by_its_own_elements(last):
    v = vectors(0, 1, 24 + last)[0]
    v[-1] = 0.0  # is no more and no less than a place behind the end
    chunked = ChunkTopK(chunk=12, kept=8)
    expected = torch.tensor(by_definition(v.tolist(), 12, 8), dtype=v.dtype)
    assert torch.allclose(chunked.decode(chunked.encode(v), v), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("numel", [3, 40, 150])
def test_all_elements_of_all_chunks_unquantised_are_the_vector(numel):
    v = vectors(0, 1, numel)[0]
    whole = ChunkTopK(chunk=40, kept=40, quantised=False)
    assert torch.equal(whole.decode(whole.encode(v), v), v)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 12, 19])
@pytest.mark.parametrize("numel", [1, 7, 8, 33])
def test_packed_codes_are_unpacked_unchanged(bits, numel):
    dtype = torch.uint8 if bits in {1, 2, 4, 8} else torch.int64
    codes = torch.randint(1 << bits, (numel,), dtype=dtype, generator=torch.Generator().manual_seed(0))
    packed = pack(codes, bits)
    assert packed.numel() == packed_bytes(numel, bits)
    assert torch.equal(unpack(packed, bits, numel), codes)


@pytest.mark.parametrize("compressor", [QSGD(levels=4), QSGD(levels=4, bucket=2), TernGrad()], ids=lambda c: c.label)
def test_random_rounding_is_unbiased_by_exact_expectation(compressor):
    """A draw below the fraction rounds up. Fractions are hundredths, so a hundred draws give the exact expectation."""
    v = torch.tensor([0.36, -0.48, 0.64, -0.48], dtype=torch.float64)  # norm 1; in pairs .6 (-.8) and .8 (-.6)
    draws = (torch.arange(1600, dtype=torch.float64) + 0.5) / 1600
    found = torch.stack([compressor.decode(compressor.quantise(v, draw.expand(4)), v) for draw in draws])
    torch.testing.assert_close(found.mean(dim=0), v, rtol=0, atol=1.1 / 1600)
    assert len({tuple(row.tolist()) for row in found}) > 1


def test_levels_are_multiples_of_the_norm_and_a_zero_vector_stays_zero():
    v = torch.tensor([3.0, -4.0, 0.0])
    qsgd = QSGD(levels=2)
    qsgd.start((), 0, 1, 0)
    decoded = qsgd.decode(qsgd.encode(v), v)
    assert {abs(value) for value in decoded.tolist()} <= {0.0, 2.5, 5.0}
    assert decoded[2] == 0
    assert not qsgd.decode(qsgd.encode(v * 0), v).any()


def test_workers_round_independently():
    same = lambda rank, count: vectors(0, count)  # noqa: E731
    ranks = averaged("terngrad", 1, given=same)
    assert not torch.equal(ranks[0][1], ranks[1][1])


def test_power_sgd_of_matrices_of_low_rank_is_their_mean():
    def low_rank(rank, count):
        random = torch.Generator().manual_seed(7)  # all in the same two-dimensional space
        left = torch.randn(8, 2, generator=random, dtype=torch.float64)
        weights = torch.randn(count, 2, 10, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
        return (left @ weights).view(count, 80)

    ranks = averaged({"kind": "powersgd", "rank": 2}, 3, shapes=((8, 10),), given=low_rank)
    mean = torch.stack([low_rank(rank, 3) for rank in range(3)]).mean(dim=0)
    for means, _, residual, _ in ranks:
        torch.testing.assert_close(means, mean, rtol=1e-10, atol=1e-10)
        assert float(residual.abs().max()) < 1e-10


@pytest.mark.parametrize("rank", [8, 100])
def test_power_sgd_of_full_rank_is_the_mean(rank):
    setting = {"kind": "powersgd", "rank": rank, "least": 0.0}
    assert len(PowerSGD(rank=rank, least=0.0).messages(80, ((8, 10),))) == 2
    ranks = averaged(setting, 3, shapes=((8, 10),), given=lambda rank, count: vectors(rank, count, 80))
    mean = torch.stack([vectors(rank, 3, 80) for rank in range(3)]).mean(dim=0)
    for means, *_ in ranks:
        torch.testing.assert_close(means, mean, rtol=1e-9, atol=1e-9)


def test_power_sgd_improves_on_a_constant_matrix_because_its_factors_are_kept():
    same = lambda rank, count: vectors(0, 1, 80).expand(count, 80).clone()  # noqa: E731
    (means, _, _, mine), *_ = averaged({"kind": "powersgd", "rank": 1}, 200, shapes=((8, 10),), given=same)
    errors = (means.cumsum(dim=0) / torch.arange(1, 201)[:, None] - mine).norm(dim=1)
    assert errors[-1] < 0.1 * errors[0]


def test_half_precision_clips_values_that_would_overflow_and_sends_the_rest_later():
    huge = lambda rank, count: torch.tensor([[1e5]] + [[0.0]] * (count - 1))  # noqa: E731
    for means, _, residual, _ in averaged("fp16", 30, shapes=(), given=huge):
        assert means.isfinite().all()
        assert float(means.sum()) == pytest.approx(1e5, rel=1e-3)
        assert float(residual) == pytest.approx(0.0, abs=100)


# ---------------------------------------------------------------- DGC


def dgc(**params):
    compressor = DGC(**params)
    compressor.start((), 0, 4, 0)
    return compressor


def test_dgc_corrects_momentum_and_masks_it_at_the_elements_sent():
    compressor = dgc(ratio=0.5, momentum=0.5)
    assert compressor.load(torch.tensor([1.0, 4.0])).tolist() == [1.0, 4.0]
    compressor.sent(torch.tensor([0.0, 4.0]))
    assert compressor.load(torch.tensor([1.0, 4.0])).tolist() == [1.5, 4.0]


def test_while_nothing_is_sent_dgc_sums_the_updates_of_momentum_sgd():
    u, compressor = torch.zeros(3), dgc(ratio=0.001, momentum=0.9)
    for g in vectors(0, 6, 3, torch.float32):
        u = 0.9 * u + g
        torch.testing.assert_close(compressor.load(g).clone(), u)


def test_dgc_clips_to_its_share_of_the_norm():
    compressor = dgc(clip=1.0)  # of 4 workers: each may have a norm of 1/2
    torch.testing.assert_close(compressor.load(torch.tensor([3.0, 4.0])), torch.tensor([0.3, 0.4]))
    assert compressor.load(torch.tensor([0.3, 0.0])).tolist() == pytest.approx([0.3, 0.0])


def test_dgc_warms_its_sparsity_up_in_five_stages():
    compressor, kept = dgc(ratio=0.001, warmup=2), []
    for _ in range(12):
        compressor.load(torch.zeros(100_000))
        kept.append(compressor.kept(100_000))
    assert kept == pytest.approx([31623, 31623, 10000, 10000, 3163, 3163, 1000, 1000, 317, 317, 100, 100], abs=1)


def test_dgc_sends_messages_of_changing_size():
    ranks = averaged({"kind": "dgc", "ratio": 0.01, "warmup": 1}, 8)
    counts = [int((row != 0).sum()) for row in ranks[0][1]]
    assert counts[0] > counts[2] > counts[4]
    assert counts[-1] == 2


def test_vectors_without_values_warm_up_like_those_with_values():
    """The sizes follow from the stages: ceil(ratio^(stage / 6) numel) elements of 8 bytes."""

    def body(comm):
        counted = []
        for like in (torch.ones(10_000), Phantom(10_000)):
            metered = MeteredComm(comm, MonotonicClock())
            setting = {"kind": "dgc", "ratio": 0.001, "warmup": 2, "momentum": 0.9, "clip": 1.0}
            averager, sizes = Averager(registry.create(setting), metered, like), []
            for _ in range(12):
                before = metered.payload_bytes
                averager.begin(like).wait()
                sizes.append(metered.payload_bytes - before)
            counted.append(sizes)
        return counted

    stages = [8 * math.ceil(10_000 * 0.001 ** (stage / 6)) for stage in range(1, 7)]
    expected = [size for size in stages for _ in range(2)]
    for real, phantom in run_replicas(2, body):
        assert real == phantom == expected


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("topp", "compressor 'topp' is unknown; did you mean 'topk'? (known: none, topk, chunk-topk, dgc, "
                 "chunkwise, randomk, powersgd, signsgd, qsgd, terngrad, fp16, bf16)"),
        ({"kind": "topk", "ratio": 0}, "compressor 'topk': ratio = 0; expected a number, above 0 to 1"),
        ({"kind": "topk", "ratio": 2}, "compressor 'topk': ratio = 2; expected a number, above 0 to 1"),
        ({"kind": "topk", "ratoi": 1}, "compressor 'topk' has no parameter 'ratoi'; did you mean 'ratio'? "
                                       "(it takes ns_per_byte, ratio)"),
        ({"kind": "qsgd", "levels": 128}, "compressor 'qsgd': levels = 128; expected a whole number, from 1 to 127"),
        ({"kind": "dgc", "momentum": 1.0}, "compressor 'dgc': momentum = 1.0; expected a number, from 0 to below 1"),
        ({"kind": "powersgd", "rank": 0}, "compressor 'powersgd': rank = 0; expected a whole number, 1 or more"),
        ({"ratio": 0.1}, "{'ratio': 0.1}: expected a name, or a table such as { kind = \"topk\", ratio = 0.01 }"),
        (7, '7: expected a name, or a table such as { kind = "topk", ratio = 0.01 }'),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line(value, message):
    with pytest.raises(CompressorError) as caught:
        registry.create(value)
    assert str(caught.value) == message
