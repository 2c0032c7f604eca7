import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbench.workloads.data.shards import Shards

LABELS = [sample % 10 for sample in range(1000)]


def imbalance(shards):
    """The share of each worker's most common class, averaged over workers: 0.1 if perfectly mixed."""
    shares = [max(Counter(LABELS[i] for i in shard).values()) / len(shard) for shard in shards]
    return sum(shares) / len(shares)


@pytest.mark.parametrize("text", ["iid", "dirichlet:0.5", "dirichlet:10"])
def test_a_printed_rule_parses_to_the_same_rule(text):
    assert str(Shards.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["idd", "dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:-1", "dirichlet:nan", "dirichlet:inf", 3],
)
def test_any_other_text_is_refused(text):
    message = f'expected "iid" or "dirichlet:ALPHA" with ALPHA above 0, such as "dirichlet:0.5", got {text!r}'
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Shards.parse(text)


@given(
    rule=st.sampled_from(["iid", "dirichlet:1000", "dirichlet:0.5", "dirichlet:0.001"]),
    labels=st.lists(st.integers(0, 4), min_size=8, max_size=100),
    world_size=st.integers(1, 8),
    seed=st.integers(0, 5),
)
def test_every_sample_has_exactly_one_worker_and_every_worker_a_sample(rule, labels, world_size, seed):
    shards = Shards.parse(rule).divide(labels, world_size, seed)
    assert len(shards) == world_size
    assert sorted(index for shard in shards for index in shard) == list(range(len(labels)))
    assert all(shards)


def test_iid_shards_have_equal_sizes_and_mixed_classes():
    shards = Shards.parse("iid").divide(LABELS, 3, seed=1)
    assert sorted(map(len, shards)) == [333, 333, 334]
    assert imbalance(shards) < 0.16


def test_a_smaller_alpha_makes_shards_more_different():
    mixed, skewed, extreme = (
        imbalance(Shards.parse(f"dirichlet:{alpha}").divide(LABELS, 4, seed=1)) for alpha in (100, 0.5, 0.01)
    )
    assert mixed < 0.2 < skewed < extreme


def test_the_division_depends_only_on_the_seed():
    rule = Shards.parse("dirichlet:0.5")
    assert rule.divide(LABELS, 4, seed=1) == rule.divide(LABELS, 4, seed=1)
    assert rule.divide(LABELS, 4, seed=1) != rule.divide(LABELS, 4, seed=2)


def test_more_workers_than_samples_are_refused():
    with pytest.raises(ValueError, match=r"^3 samples for 4 workers; expected at least one per worker$"):
        Shards.parse("iid").divide([0, 1, 2], 4, seed=1)
