import pytest
import torch
from torch import nn
from training_alone import FakeClock

from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.compute.buckets import Bucket, plan_buckets
from wanbench.workloads.compute.emulated import EmulatedCompute, StepTime
from wanbench.workloads.compute.task import EmulatedTask, LearningTask, Snapshot, random_gradient
from wanbench.workloads.models.learner import Learner, LearnerError, parameter_tensors

MS = 1_000_000


def emulation(buckets, clock, mean_s=0.1):
    return EmulatedCompute(StepTime(mean_s, 0.0, seed=1, rank=0), buckets, clock)


def emulated_task(clock=None, rank=0):
    clock = clock or FakeClock()
    buckets = (Bucket(1, 1, 6, 10, 0.5), Bucket(0, 0, 0, 6, 1.0))
    return EmulatedTask(random_gradient(10, seed=1, rank=rank), emulation(buckets, clock), clock)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


BATCH = (torch.arange(24.0).view(4, 6) / 24, torch.tensor([0, 1, 2, 0]))


def learner(module=None, batches=(BATCH,), loss=nn.functional.cross_entropy, evaluate=None):
    return Learner(module or network(), batches, loss, evaluate)


def learning_task(given=None, emulate=False, clock=None, cap_bytes=1):
    given, clock = given or learner(), clock or FakeClock()
    buckets = plan_buckets(parameter_tensors(given.module), cap_bytes)
    return LearningTask(given, buckets, clock, emulation(buckets, clock) if emulate else None)


def reference_gradient():
    module = network()
    loss = nn.functional.cross_entropy(module(BATCH[0]), BATCH[1])
    parts = torch.autograd.grad(loss, list(module.parameters()))
    return torch.cat([part.flatten() for part in parts]), float(loss.detach())


def test_an_emulated_gradient_survives_an_all_reduce_that_overwrites_it():
    task = emulated_task()
    first = task.gradient(0)[0].clone()
    task.gradient(1, lambda view: view.zero_())
    assert torch.equal(task.gradient(2)[0], first)
    assert first.abs().min() > 0


def test_emulated_ranks_have_equal_parameters_and_different_gradients():
    first, second = emulated_task(rank=0), emulated_task(rank=1)
    assert torch.equal(first.w, second.w)
    assert not torch.equal(first.gradient(0)[0], second.gradient(0)[0])


def test_an_emulated_step_hands_over_slices_of_its_gradient_on_schedule():
    clock = FakeClock()
    task = emulated_task(clock)
    seen = []
    g, loss = task.gradient(0, lambda view: seen.append((view, clock.now() / MS)))
    assert [(view.data_ptr(), view.numel(), at) for view, at in seen] == [
        (g[6:].data_ptr(), 4, pytest.approx(200 / 3, abs=1e-3)),
        (g[:6].data_ptr(), 6, 100.0),
    ]
    assert (loss, task.snapshot(task.w), task.compute_ns) == (None, None, 100 * MS)


@pytest.mark.parametrize("emulate", [False, True])
def test_a_real_gradient_equals_that_of_autograd(emulate):
    expected, expected_loss = reference_gradient()
    task = learning_task(emulate=emulate)
    for step in range(2):
        g, loss = task.gradient(step)
        torch.testing.assert_close(g, expected)
        assert loss == pytest.approx(expected_loss)


@pytest.mark.parametrize("emulate", [False, True])
def test_buckets_arrive_complete_and_from_the_end_of_the_model(emulate):
    expected, _ = reference_gradient()
    task = learning_task(emulate=emulate)
    seen = []
    g, _ = task.gradient(0, lambda view: seen.append((view, view.clone())))
    assert [view.numel() for view, _ in seen] == [3, 15, 5, 30]
    torch.testing.assert_close(torch.cat([copy for _, copy in seen[::-1]]), expected)
    assert seen[-1][0].data_ptr() == g.data_ptr()


def test_the_last_layer_is_handed_over_while_the_first_is_still_computed():
    module = network()
    events = []
    module[0].weight.register_hook(lambda gradient: events.append("first layer done"))
    learning_task(learner(module)).gradient(0, lambda view: events.append(view.numel()))
    assert events.index(15) < events.index("first layer done") < events.index(30)


def test_with_emulated_time_no_bucket_is_handed_over_before_the_backward_pass_ends():
    module = network()
    events = []
    module[0].weight.register_hook(lambda gradient: events.append("first layer done"))
    learning_task(learner(module), emulate=True).gradient(0, lambda view: events.append(view.numel()))
    assert events[0] == "first layer done"


def test_views_can_be_overwritten_as_soon_as_they_are_handed_over():
    task = learning_task()
    g, _ = task.gradient(0, lambda view: view.fill_(7.0))
    assert torch.equal(g, torch.full_like(g, 7.0))
    torch.testing.assert_close(task.gradient(1)[0], reference_gradient()[0])


def test_updating_the_flat_vector_updates_the_module():
    given = learner()
    task = learning_task(given)
    task.w.zero_()
    assert all(bool((parameter == 0).all()) for parameter in given.module.parameters())
    assert task.w.numel() == 53


class Backwards(nn.Module):
    """A module that registers its layers in the opposite order of their use, and has one unused layer."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(5, 3, bias=False)
        self.first = nn.Linear(6, 5, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


def test_buckets_keep_their_order_when_gradients_complete_in_another():
    seen = []
    learning_task(learner(Backwards())).gradient(0, lambda view: seen.append(view.clone()))
    assert [view.numel() for view in seen] == [30, 15, 4]
    assert seen[0].abs().sum() > 0


def test_an_unused_parameter_has_a_zero_gradient_and_is_also_handed_over():
    seen = []
    learning_task(learner(Backwards())).gradient(0, lambda view: seen.append(view.clone()))
    assert torch.equal(seen[-1], torch.zeros(4))


def test_frozen_parameters_are_neither_sent_nor_trained():
    module = network()
    module[0].weight.requires_grad_(False)
    before = module[0].weight.clone()
    task = learning_task(learner(module))
    task.w.zero_()
    assert task.w.numel() == 23
    assert torch.equal(module[0].weight, before)


def slow_loss(clock, ns):
    def loss(outputs, targets):
        clock.time_ns += ns
        return nn.functional.cross_entropy(outputs, targets)

    return loss


def test_real_compute_is_measured_without_the_time_spent_sending():
    clock = FakeClock()

    def sending(view):
        clock.time_ns += 40 * MS

    task = learning_task(learner(loss=slow_loss(clock, 30 * MS)), clock=clock)
    task.gradient(0, sending)
    task.gradient(1, None)
    assert task.compute_ns == 60 * MS


def test_real_work_that_exceeds_its_emulated_time_makes_the_step_longer():
    clock = FakeClock()
    task = learning_task(learner(loss=slow_loss(clock, 130 * MS)), emulate=True, clock=clock)
    began = clock.now()
    task.gradient(0)
    assert (task.compute_ns, clock.now() - began) == (100 * MS, 130 * MS)


def test_batches_that_end_are_iterated_again():
    task = learning_task(learner(batches=[BATCH, BATCH]))
    assert len({task.gradient(step)[1] for step in range(5)}) == 1


def test_batches_that_run_out_are_an_error():
    task = learning_task(learner(batches=iter([BATCH])))
    task.gradient(0)
    message = "^there are no more batches; expected an endless iterator, or an iterable that can be iterated again$"
    with pytest.raises(LearnerError, match=message):
        task.gradient(1)


def test_a_loss_for_each_sample_is_an_error():
    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    with pytest.raises(LearnerError, match=r"^the loss has shape \(4,\); expected one number, such as a mean$"):
        learning_task(learner(loss=loss)).gradient(0)


def test_evaluation_uses_evaluation_mode_and_costs_no_compute_time():
    module, clock = network(), FakeClock()

    def evaluate():
        clock.time_ns += MS
        return 0.25 if not (module.training or torch.is_grad_enabled()) else 0.0

    task = learning_task(learner(module, evaluate=evaluate), clock=clock)
    assert task.accuracy(task.snapshot(task.w)) == 0.25
    assert module.training
    assert task.compute_ns == 0


def test_a_copy_of_the_model_is_evaluated_as_it_was_with_its_buffers():
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 3))
    expected, copies = [], []

    def evaluate():
        return float(module(BATCH[0]).abs().sum())

    task = learning_task(learner(module, evaluate=evaluate))
    for step in range(3):
        module.eval()
        with torch.no_grad():
            expected.append(evaluate())
        module.train()
        copies.append(task.snapshot(task.w))
        g, _ = task.gradient(step)  # moves batch norm's running statistics
        task.w.add_(g, alpha=-0.1)
    assert len(set(expected)) == 3
    assert [task.accuracy(copy) for copy in copies] == expected


def test_the_mean_of_models_has_the_mean_of_their_running_statistics_too():
    def mean(comm):
        values = torch.full((3,), float(comm.rank))
        return Snapshot(values, [values[:2].clone(), torch.tensor(comm.rank)]).averaged(comm)

    for rank, snapshot in enumerate(run_replicas(3, mean, timeout_s=10.0)):
        statistics, batches = snapshot.buffers
        assert [*snapshot.w, *statistics] == [1.0] * 5
        assert batches == rank, "a count of batches stays a worker's own"


def test_accuracy_is_none_without_an_evaluate_function():
    task = learning_task()
    assert task.accuracy(task.snapshot(task.w)) is None
