"""MNIST from a folder of IDX files, and the network that learns it."""

import gzip
import re
from collections import Counter

import numpy as np
import pytest
import torch
from data_sets import idx as written
from data_sets import mnist
from training_alone import FakeClock, one_thread  # noqa: F401  # all tests use the fixture

from wanbench.workloads.data.datasets import WorkloadError, batches
from wanbench.workloads.data.mnist import check, idx, read
from wanbench.workloads.data.shards import Portion, Shards
from wanbench.workloads.models.small_cnn import MNIST_CNN
from wanbench.workloads.registry import check_data, data_folder, info, make_task
from wanbench.workloads.seeding import stream

HEADER = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3])  # 2 images of 1 x 3 pixels
TRAIN_IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def folder(tmp_path):
    return mnist(tmp_path / "mnist")


def task(folder, rank=0, world_size=1, seed=1, **train):
    spec = {"name": "mnist-cnn", "data": str(folder)}
    return make_task(spec, rank, world_size, seed, FakeClock(), 1 << 20, train)


def refused(path, message, function):
    with pytest.raises(WorkloadError, match=f"^{re.escape(f'workload.data: {path}: {message}')}") as refusal:
        function(path if path.is_dir() or not path.exists() else path.parent)
    assert "\n" not in str(refusal.value)


def test_the_tensors_listed_without_torch_are_those_of_the_module():
    module = MNIST_CNN.network(torch.Generator())
    assert [(t.name, t.shape) for t in MNIST_CNN.tensors()] == [
        (n, tuple(p.shape)) for n, p in module.named_parameters()
    ]
    assert info({"name": "mnist-cnn"}).params == 8 * 26 + 16 * (8 * 25 + 1) + 32 * (16 * 49 + 1) + 10 * 33 == 28_874
    assert module(torch.zeros(5, 1, 28, 28)).shape == (5, 10)


@pytest.mark.parametrize("stored", [bytes, gzip.compress])
def test_an_idx_file_is_a_header_of_big_endian_sizes_and_the_values(tmp_path, stored):
    path = tmp_path / "images"
    path.write_bytes(stored(HEADER + bytes([1, 2, 3, 4, 5, 255])))
    assert idx(path, 3).tolist() == [[[1, 2, 3]], [[4, 5, 255]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file of this kind; it begins with an empty file, expected 00000803"),
        (b"<html>", "not an IDX file of this kind; it begins with 3c68746d, expected 00000803"),
        (bytes([0, 0, 8, 1]) + HEADER[4:], "not an IDX file of this kind; it begins with 00000801, expected 00000803"),
        (bytes([0, 0, 13, 3]) + HEADER[4:], "not an IDX file of this kind; it begins with 00000d03, expected 00000803"),
        (HEADER[:9], "truncated in its header of 16 bytes"),
        (HEADER + bytes(5), "truncated or damaged; its header promises 2 x 1 x 3 values, the file has 5"),
        (HEADER + bytes(7), "truncated or damaged; its header promises 2 x 1 x 3 values, the file has 7"),
        (gzip.compress(HEADER + bytes(6), mtime=0)[:-9], "damaged gzip file: "),
        (gzip.compress(HEADER + bytes(6), mtime=0)[:-8] + bytes(8), "damaged gzip file: CRC check failed"),
        (b"\x1f\x8b" + bytes(30), "damaged gzip file: "),
        (b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 20, "damaged gzip file: "),
    ],
)
def test_a_damaged_file_gets_one_line_that_says_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "images"
    path.write_bytes(content)
    refused(path, message, lambda folder: idx(folder / "images", 3))


@pytest.mark.parametrize("compressed", [False, True])
def test_images_and_labels_come_from_the_files(tmp_path, compressed):
    data = read(mnist(tmp_path / "mnist", compressed=compressed))
    assert (data.train.shape, data.test.shape) == ((200, 1, 28, 28), (50, 1, 28, 28))
    assert Counter(data.train_labels) == dict.fromkeys(range(10), 20)
    assert data.test_labels.tolist() == [index % 10 for index in range(50)]
    pixels = data.train.double()
    assert (float(data.mean), float(data.std)) == pytest.approx((float(pixels.mean()), float(pixels.std(correction=0))))
    assert float(data.train[3, 0, 10:12].float().mean()) > 190 > 60 > float(data.train[3, 0, 12:].float().mean())


def test_batches_have_mean_0_and_variance_1_and_keep_the_class(folder):
    data = read(folder)
    x, y = next(batches(data, 200, stream(1, "test"), range(200)))
    assert (x.shape, x.dtype, y.dtype) == ((200, 1, 28, 28), torch.float32, torch.int64)
    assert float(x.mean()) == pytest.approx(0, abs=1e-4)
    assert float(x.std()) == pytest.approx(1, abs=1e-4)
    assert torch.equal((x[:, 0].mean(dim=2).argmax(dim=1) - 4) // 2, y)  # the stripe's height


@pytest.mark.parametrize("rule", ["iid", "dirichlet:0.2"])
def test_every_image_belongs_to_one_worker(folder, rule):
    labels = read(folder).train_labels
    shards = [Portion(rank, 4, 1, shards=Shards.parse(rule)).indices(labels) for rank in range(4)]
    assert sorted(index for shard in shards for index in shard) == list(range(200))
    mixed = [Counter(labels[index] for index in shard) for shard in shards]
    few = min(count[label] for count in mixed for label in range(10))
    assert few == 0 if rule != "iid" else few > 0


def test_training_repeats_for_a_seed_and_learns_the_test_images(folder):
    runs = [task(folder, batch_size=32) for _ in range(2)]
    untrained = runs[0].accuracy(runs[0].snapshot(runs[0].w))
    losses = [[], []]
    for learner, seen in zip(runs, losses, strict=True):
        for step in range(60):
            g, loss = learner.gradient(step)
            learner.w.add_(g, alpha=-0.05)
            seen.append(loss)
    assert torch.equal(runs[0].w, runs[1].w)
    assert losses[0] == losses[1]
    assert untrained < 0.4 < 0.9 < runs[0].accuracy(runs[0].snapshot(runs[0].w))
    assert sum(losses[0][-5:]) < 0.2 * sum(losses[0][:5])
    assert not torch.equal(task(folder).w, task(folder, seed=2).w)


@pytest.mark.parametrize("name", [TRAIN_IMAGES, "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    refused(folder, f"no file {name} or {name}.gz; expected the four IDX files of MNIST", check)


def test_a_missing_folder_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "no such folder; expected the four IDX files of MNIST", check)


def test_a_truncated_file_is_refused_before_training(folder):
    path = folder / TRAIN_IMAGES
    path.write_bytes(path.read_bytes()[:-1])
    refused(path, "truncated or damaged; its header promises 200 x 28 x 28 values, the file has 156799", read)


def test_labels_that_do_not_fit_the_images_are_refused(folder):
    path = folder / "t10k-labels-idx1-ubyte"
    path.write_bytes(written(np.arange(49) % 10))
    refused(path, "49 labels for images of shape (50, 28, 28)", check)
    path.write_bytes(written(np.arange(50) % 11))
    refused(path, "label 10; expected labels from 0 to 9", check)


def test_without_a_key_the_folder_is_data_mnist_or_below_wanbench_data(folder, monkeypatch):
    monkeypatch.delenv("WANBENCH_DATA", raising=False)
    assert str(data_folder({"name": "mnist-cnn"})) == "data/mnist"
    monkeypatch.setenv("WANBENCH_DATA", str(folder.parent))
    assert data_folder({"name": "mnist-cnn"}) == folder
    assert str(data_folder({"name": "mnist-cnn", "data": "elsewhere"})) == "elsewhere"
    assert data_folder({"name": "digits-cnn"}) is None
    check_data({"name": "mnist-cnn"})
