"""ResNet-50 and ImageNet from a folder in its layout."""

import re

import pytest
import torch
from data_sets import imagenet
from training_alone import FakeClock, one_thread  # noqa: F401  # all tests use the fixture

from wanbench.workloads.data.datasets import WorkloadError, batches
from wanbench.workloads.data.imagenet import SIDE, check, read
from wanbench.workloads.models.resnet import resnet50, resnet50_tensors
from wanbench.workloads.registry import make_task
from wanbench.workloads.seeding import stream


@pytest.fixture
def folder(tmp_path):
    return imagenet(tmp_path / "images")


def refused(path, message):
    with pytest.raises(WorkloadError, match=f"^{re.escape(f'workload.data: {path}: {message}')}"):
        check(path)


def test_the_module_has_the_tensors_and_the_25_557_032_parameters_of_the_table():
    module = resnet50(torch.Generator())
    expected = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(t.name, t.shape) for t in resnet50_tensors()] == expected
    assert sum(p.numel() for p in module.parameters()) == 25_557_032


def test_classes_are_numbered_in_the_order_of_their_names(folder):
    images = read(folder)
    assert [path.name for path in images.train[:5]] == [f"n00000_{i}.JPEG" for i in range(4)] + ["n00001_0.JPEG"]
    assert images.train_labels == images.test_labels == (0,) * 4 + (1,) * 4 + (2,) * 4


def test_batches_are_normalised_parts_of_the_images(folder):
    x, y = next(batches(read(folder), 12, stream(1, "test"), range(12)))
    assert (x.shape, x.dtype) == ((12, 3, SIDE, SIDE), torch.float32)
    coloured = [index for index in range(12) if y[index] != 0]  # class 0 has a grey image
    assert [int(x[index].mean(dim=(1, 2)).argmax()) for index in coloured] == [int(y[index]) for index in coloured]
    assert x.abs().max() < 3


def test_accuracy_is_the_share_of_test_images_with_the_right_class(folder):
    class ByColour(torch.nn.Module):
        def forward(self, x):
            return x.mean(dim=(2, 3))

    images = read(folder)
    assert images.accuracy(ByColour()) == pytest.approx(11 / 12, abs=1.1 / 12)
    assert images.accuracy(torch.nn.Sequential(ByColour(), torch.nn.Threshold(1e9, 0.0))) == 4 / 12


def test_a_step_in_emulated_time_has_a_gradient(folder):
    clock = FakeClock()
    spec = {"name": "resnet50-imagenet", "data": str(folder), "step_cv": 0}
    task = make_task(spec, 1, 2, 1, clock, 25 << 20, {"batch_size": 2})
    g, loss = task.gradient(0)
    assert clock.now() == 300_000_000
    assert g.numel() == 25_557_032
    assert float(g.norm()) > 0
    assert loss == pytest.approx(6.9, abs=2)  # log 1000


def test_a_missing_folder_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "no such folder; expected train/<class>/*.JPEG and val/<class>/*.JPEG")


def test_images_without_class_folders_are_refused(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.JPEG").write_bytes(b"")
    refused(tmp_path, "no class folders in train; expected train/<class>/*.JPEG")


def test_a_class_in_val_but_not_in_train_is_refused(folder):
    (folder / "val" / "n00007").mkdir()
    refused(folder, "val/n00007 is not a class of train")


def test_a_class_without_images_is_refused(folder):
    for path in (folder / "train" / "n00000").iterdir():
        path.rename(path.with_suffix(".tif"))
    refused_at = folder / "train" / "n00000"
    with pytest.raises(WorkloadError, match=f"^workload.data: {re.escape(str(refused_at))}: no image "):
        check(folder)


def test_a_file_that_is_not_an_image_is_named(folder):
    path = folder / "train" / "n00001" / "n00001_0.JPEG"
    path.write_bytes(b"not a JPEG")
    with pytest.raises(WorkloadError, match=f"^workload.data: {re.escape(str(path))}: Pillow cannot read this image: "):
        next(batches(read(folder), 12, stream(1, "test"), range(12)))
