"""The small transformer and its training text."""

import ast
import subprocess
import sys

import torch
from training_alone import FakeClock, one_thread  # noqa: F401  # the fixture is used by all

from wanbench.workloads.data.portion import Portion
from wanbench.workloads.data.shards import Shards
from wanbench.workloads.data.text import ALPHABET, CONTEXT, TOPICS, _windows, text
from wanbench.workloads.models import gpt_char
from wanbench.workloads.registry import info, make_task


def test_one_worker_learns_to_predict_half_of_the_characters_in_120_steps():
    task = make_task({"name": "gpt-char"}, 0, 1, 1, FakeClock(), 1 << 20, {"batch_size": 16})
    assert task.evaluation(task.w)() < 0.25
    momentum = torch.zeros_like(task.w)
    for step in range(120):
        g, _ = task.gradient(step)
        momentum.mul_(0.9).add_(g)
        task.w.add_(momentum, alpha=-0.1)
    # The most common character makes up 18 %. Names and numbers cannot be predicted, so accuracy stays below 1.
    assert 0.40 < task.evaluation(task.w)() < 0.95


def test_the_tensors_listed_without_torch_are_those_of_the_module():
    module = gpt_char.module_of(torch.Generator())
    expected = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(t.name, t.shape) for t in gpt_char.tensors()] == expected
    assert info({"name": "gpt-char"}).params == 107_392


def test_no_prediction_depends_on_a_later_character():
    module = gpt_char.module_of(torch.Generator().manual_seed(1))
    sample = text().test[:1, :-1]
    changed = sample.clone()
    changed[0, 20] = (changed[0, 20] + 1) % len(ALPHABET)
    before, after = module(sample), module(changed)
    assert torch.equal(before[0, :20], after[0, :20])
    assert not torch.allclose(before[0, 20:], after[0, 20:])


def test_targets_are_the_next_characters():
    x, y = next(gpt_char.make(Portion(0, 1, 1)).batches)
    assert x.shape == y.shape == (32, CONTEXT)
    assert torch.equal(x[:, 1:], y[:, :-1])


def test_the_text_is_the_same_in_every_process():
    code = "from wanbench.workloads.data.text import TOPICS, _windows; print([_windows(topic) for topic in TOPICS])"
    surroundings = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=True)
    assert ast.literal_eval(result.stdout) == [_windows(topic) for topic in TOPICS]


def test_the_text_consists_of_sentences():
    written = "".join(ALPHABET[index] for index in text().train[0])
    assert " plus " in written
    assert " makes " in "".join(ALPHABET[i] for window in text().train[:5] for i in window)
    assert len(text().topics) == len(text().train) == 8 * 320


def test_dirichlet_shards_differ_in_topics_and_cover_all_text():
    shards = [Portion(rank, 4, 1, shards=Shards(0.1)).indices(text().topics) for rank in range(4)]
    assert sorted(index for shard in shards for index in shard) == list(range(len(text().topics)))
    mixed = [[sum(text().topics[i] == t for i in shard) / len(shard) for t in range(8)] for shard in shards]
    assert max(max(shares) for shares in mixed) > 0.3  # if assigned at random, each would be an eighth
    assert min(min(shares) for shares in mixed) < 0.02
