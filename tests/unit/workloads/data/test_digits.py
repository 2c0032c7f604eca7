import time

import torch
from training_alone import one_thread  # noqa: F401  # all tests use the fixture

from wanbench.workloads.data import digits
from wanbench.workloads.data.datasets import batches
from wanbench.workloads.data.digits import TEST_SAMPLES, Split
from wanbench.workloads.data.shards import Portion, Shards
from wanbench.workloads.models.learner import learn
from wanbench.workloads.models.small_cnn import DIGITS_CNN
from wanbench.workloads.registry import make_task
from wanbench.workloads.seeding import stream

SPEC = {"name": "digits-cnn", "step_time": "real"}
BUCKET = 64 << 10


class RealClock:
    def now(self):
        return time.monotonic_ns()

    def sleep(self, seconds):
        raise AssertionError("real compute does not sleep")


def task(rank=0, world_size=1, seed=1, **train):
    return make_task(SPEC, rank, world_size, seed, RealClock(), BUCKET, train)


def descend(learner, steps, lr=0.1):
    losses = []
    for step in range(steps):
        g, loss = learner.gradient(step)
        learner.w.add_(g, alpha=-lr)
        losses.append(loss)
    return losses


def test_one_worker_learns_digits_to_95_percent_in_300_steps():
    learner = task()
    assert learner.accuracy(learner.snapshot(learner.w)) < 0.3
    descend(learner, 300)
    assert learner.accuracy(learner.snapshot(learner.w)) > 0.95


def test_the_tensors_listed_without_torch_are_those_of_the_module():
    module = DIGITS_CNN.network(torch.Generator())
    expected = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(t.name, t.shape) for t in DIGITS_CNN.tensors()] == expected


def test_all_ranks_start_with_equal_parameters():
    assert torch.equal(task(rank=0, world_size=4).w, task(rank=3, world_size=4).w)


def test_another_seed_gives_other_parameters():
    assert not torch.equal(task(seed=1).w, task(seed=2).w)


def test_the_same_seed_gives_the_same_losses_despite_other_random_draws():
    first = descend(task(rank=1, world_size=4), 10)
    torch.manual_seed(99)
    assert descend(task(rank=1, world_size=4), 10) == first


def test_ranks_get_different_batches():
    assert descend(task(rank=0, world_size=2), 3) != descend(task(rank=1, world_size=2), 3)


def test_the_training_digits_are_divided_among_the_ranks():
    rule = Shards.parse("iid")
    seen = []
    for rank in range(3):
        learner = learn(Portion(rank, 3, 1, batch_size=479, shards=rule), "digits-cnn", DIGITS_CNN.network, digits)
        images, _ = next(learner.batches)
        seen.extend(tuple(image.flatten().tolist()) for image in images)
    everything = [tuple(image.flatten().tolist()) for image in digits.read().train_x]
    assert sorted(seen) == sorted(everything)


def test_training_also_works_with_dirichlet_shards():
    learner = task(rank=0, world_size=4, shards="dirichlet:0.1", batch_size=8)
    losses = descend(learner, 60)
    assert losses[-1] < losses[0] / 2


def test_one_digit_in_five_is_held_out_and_no_test_digit_is_trained_on():
    data = digits.read()
    assert (len(data.train_y), len(data.test_y)) == (1797 - TEST_SAMPLES, TEST_SAMPLES)
    seen = {tuple(image.flatten().tolist()) for image in data.train_x}
    assert not any(tuple(image.flatten().tolist()) in seen for image in data.test_x)
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)


def test_the_held_out_digits_cover_every_class():
    assert torch.bincount(digits.read().test_y).min() >= 25


def test_over_all_folds_every_digit_is_tested_once_and_never_trained_on_in_that_fold():
    tested = []
    for fold in range(5):
        data = digits.read(None, 5, fold)
        assert len(data.train_y) + len(data.test_y) == 1797
        assert abs(len(data.test_y) - 1797 / 5) < 1
        mine = {tuple(image.flatten().tolist()) for image in data.test_x}
        assert not mine & {tuple(image.flatten().tolist()) for image in data.train_x}
        tested += [tuple(image.flatten().tolist()) for image in data.test_x]
    both = torch.cat([digits.read().train_x, digits.read().test_x])
    assert sorted(tested) == sorted(tuple(image.flatten().tolist()) for image in both)


def test_the_seed_of_a_repetition_chooses_the_fold():
    portions = [Portion(0, 1, seed, batch_size=8, folds=5) for seed in (3, 8)]
    chosen = [learn(portion, "digits-cnn", DIGITS_CNN.network, digits) for portion in portions]
    shown = [{tuple(image.flatten().tolist()) for image in next(learner.batches)[0]} for learner in chosen]
    held_out = {tuple(image.flatten().tolist()) for image in digits.read(None, 5, 3).test_x}
    assert not any(images & held_out for images in shown)
    assert shown[0] != shown[1]


def test_batches_use_all_samples_of_a_shard_equally_often():
    x = torch.arange(5).float()
    produced = batches(Split(x, x.long(), x, x), 4, stream(1, "test"), [0, 1, 2])
    seen = torch.cat([next(produced)[1] for _ in range(3)])
    assert torch.bincount(seen, minlength=5).tolist() == [4, 4, 4, 0, 0]
