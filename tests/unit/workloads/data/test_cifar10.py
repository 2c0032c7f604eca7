"""ResNet-110 and CIFAR-10 from a folder in its format."""

import os
import pickle
import re
from collections import Counter
from random import Random

import numpy as np
import pytest
import torch
from data_sets import CIFAR_FILES, cifar10
from torch.utils.flop_counter import FlopCounterMode
from training_alone import FakeClock, one_thread  # noqa: F401  # all tests use the fixture

from wanbench.workloads.data.cifar10 import SIDE, check, read
from wanbench.workloads.data.datasets import WorkloadError, batches
from wanbench.workloads.models.builtins import _RESNET110 as RESNET110
from wanbench.workloads.registry import make_task
from wanbench.workloads.seeding import stream


@pytest.fixture
def folder(tmp_path):
    return cifar10(tmp_path / "cifar-10-batches-py")


def refused(path, message, function=check):
    with pytest.raises(WorkloadError, match=f"^{re.escape(f'workload.data: {path}: {message}')}"):
        function(path if path.is_dir() or not path.exists() else path.parent)


def test_it_has_the_1_7_million_parameters_of_the_paper_and_shortcuts_without_parameters():
    convolutions = 3 * 3 * (3 * 16 + 36 * 16 * 16 + 16 * 32 + 35 * 32 * 32 + 32 * 64 + 35 * 64 * 64)
    norms = 2 * (37 * 16 + 36 * 32 + 36 * 64)
    assert sum(t.numel for t in RESNET110.tensors()) == convolutions + norms + 64 * 10 + 10 == 1_727_962


def test_the_tensors_listed_without_torch_are_those_of_the_module():
    expected = [(name, tuple(p.shape)) for name, p in RESNET110.network(torch.Generator()).named_parameters()]
    assert [(t.name, t.shape) for t in RESNET110.tensors()] == expected


def test_it_has_110_layers_and_a_quarter_of_a_billion_multiply_adds():
    module = RESNET110.network(torch.Generator())
    assert sum(isinstance(part, torch.nn.Conv2d | torch.nn.Linear) for part in module.modules()) == 110
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, 3, SIDE, SIDE))
    assert counter.get_total_flops() / 2 == pytest.approx(0.253e9, rel=0.01)  # the paper's smallest network: 40.8 M


def test_images_and_labels_come_from_the_files(folder):
    data = read(folder)
    assert (data.train.shape, data.test.shape) == ((100, 3, 32, 32), (20, 3, 32, 32))
    assert Counter(data.train_labels) == dict.fromkeys(range(10), 10)
    first = pickle.loads((folder / "data_batch_1").read_bytes())[b"data"][0]
    assert torch.equal(data.train[0].flatten(), torch.from_numpy(first))  # stored with channels first
    channels = data.train.float().transpose(0, 1).flatten(1)
    torch.testing.assert_close(data.mean.flatten(), channels.mean(dim=1))
    torch.testing.assert_close(data.std.flatten(), channels.std(dim=1, correction=0))


def test_batches_shift_and_mirror_but_keep_the_class(folder):
    data = read(folder)
    produced = batches(data, 50, stream(1, "test"), range(100))
    (x, y), (again, _) = next(produced), next(produced)
    assert (x.shape, x.dtype, y.dtype) == ((50, 3, 32, 32), torch.float32, torch.int64)
    assert not torch.equal(x, again)
    brightness = x[:, :, 8:24, 8:24].mean(dim=(1, 2, 3))  # a shift fills the edges with zeros
    assert torch.corrcoef(torch.stack([brightness, y.float()]))[0, 1] > 0.99


def test_two_steps_in_emulated_time_give_gradients_a_loss_and_an_accuracy(folder):
    clock = FakeClock()
    spec = {"name": "resnet110-cifar10", "data": str(folder), "step_time": "7s", "step_cv": 0}
    task = make_task(spec, 0, 2, 1, clock, 1 << 20, {"batch_size": 2, "shards": "dirichlet:0.5"})
    before, _ = clock.now(), [task.gradient(step) for step in range(1)]
    assert clock.now() - before == 7_000_000_000
    g, loss = task.gradient(1)
    assert float(g.norm()) > 0
    assert np.isfinite(loss)
    assert 0 <= task.accuracy(task.snapshot(task.w)) <= 1


def test_equal_seeds_give_equal_parameters_despite_other_random_draws():
    modules = []
    for _ in range(2):
        modules.append(RESNET110.network(torch.Generator().manual_seed(5)))
        torch.rand(3)
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in modules), strict=True))


@pytest.mark.parametrize("name", CIFAR_FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    refused(folder, f"no file {name}; expected the folder cifar-10-batches-py of the python version of CIFAR-10")


def test_for_the_parent_folder_the_error_suggests_the_folder_inside(folder):
    refused(folder.parent, f"no file data_batch_1; did you mean {folder}?")


def test_a_missing_folder_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "no such folder; expected the folder cifar-10-batches-py")


@pytest.mark.parametrize("content", [b"", b"not a pickle", Random(1).randbytes(3000), pickle.dumps([1, 2])])
def test_a_file_that_is_not_a_batch_is_named(folder, content):
    (folder / "test_batch").write_bytes(content)
    refused(folder / "test_batch", "not a batch of CIFAR-10")


def test_images_of_another_size_are_refused(folder):
    batch = {b"labels": [1, 2], b"data": np.zeros((2, 3 * 28 * 28), np.uint8)}
    (folder / "data_batch_3").write_bytes(pickle.dumps(batch, protocol=2))
    path = folder / "data_batch_3"
    wrong = "not a batch of CIFAR-10: expected uint8 images of shape (images, 3072), each with a label 0 to 9"
    refused(path, wrong, read)


def test_a_pickle_cannot_run_a_program(folder, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    (folder / "test_batch").write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}, protocol=2))
    refused(folder / "test_batch", "not a batch of CIFAR-10 (UnpicklingError: it uses posix.mkdir)")
    assert not (tmp_path / "made").exists()
