"""The large GPTs have the sizes that llm-foundry publishes, and take the time that its throughput gives."""

import pytest

from wanbench.workloads.models import gpt
from wanbench.workloads.registry import info

# NumParams in llm-foundry's scripts/train/benchmarking/README.md, by width, blocks and context of its yamls.
PUBLISHED = {
    (768, 12, 512): 124_131_840,
    (768, 12, 1024): 124_525_056,
    (768, 12, 2048): 125_311_488,
    (1024, 24, 2048): 355_985_408,
    (2048, 24, 2048): 1_315_950_592,
    (2560, 32, 2048): 2_651_837_440,
    (4096, 32, 2048): 6_658_859_008,
}


@pytest.mark.parametrize(("shape", "params"), PUBLISHED.items())
def test_the_tensors_have_as_many_elements_as_is_published(shape, params):
    assert sum(tensor.numel for tensor in gpt.tensors(*shape)) == params


def test_gpt_2s_smallest_model_has_148_tensors():
    assert info({"name": "gpt-124m"}).tensors == 148
    assert [info({"name": name}).params for name in ("gpt-124m", "gpt-1b", "gpt-7b")] == [
        124_525_056, 1_315_950_592, 6_658_859_008,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tokens", "per_s"),
    [("gpt-124m", 0.5e6, 1_251_751), ("gpt-1b", 1e6, 363_645), ("gpt-7b", 2e6, 85_144)],
)
def test_two_sites_take_a_batch_of_opt_at_the_published_throughput(name, tokens, per_s):
    step_time_s = info({"name": name}).step_time_s
    assert 2 * step_time_s * per_s == pytest.approx(tokens, rel=0.05)  # a power of two


def test_the_embedding_is_the_last_gradient_because_the_output_layer_is_tied_to_it():
    schedule = info({"name": "gpt-1b"}).bucket_schedule(25 << 20)
    assert schedule[-1][0] > 4 * gpt.VOCABULARY * 2048
    assert schedule[-1][1] == pytest.approx(info({"name": "gpt-1b"}).step_time_s)
    assert sum(size for size, _ in schedule) == 4 * 1_315_950_592
