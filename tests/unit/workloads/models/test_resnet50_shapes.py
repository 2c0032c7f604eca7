import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from wanbench.workloads.compute.buckets import plan_buckets
from wanbench.workloads.models.resnet import resnet50_tensors


class Bottleneck(nn.Module):
    """A block with the modules of torchvision's, written independently of the table under test."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        inputs = 64
        for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=1):
            layer = []
            for block in range(blocks):
                layer.append(Bottleneck(inputs, width, 2 if stage > 1 and block == 0 else 1))
                inputs = 4 * width
            setattr(self, f"layer{stage}", nn.Sequential(*layer))
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


@pytest.fixture(scope="module")
def module():
    with torch.device("meta"):
        return ResNet50()


def test_there_are_25_557_032_parameters_in_161_tensors():
    tensors = resnet50_tensors()
    assert len(tensors) == 161
    assert sum(tensor.numel for tensor in tensors) == 25_557_032


def test_names_shapes_and_order_are_those_of_the_module(module):
    expected = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(t.name, t.shape) for t in resnet50_tensors()] == expected


def test_the_work_of_products_equals_torchs_count_for_the_backward_pass(module):
    output = module(torch.empty(1, 3, 224, 224, device="meta"))
    with FlopCounterMode(display=False) as counter:
        output.sum().backward()
    products = [t.backward_work for t in resnet50_tensors() if len(t.shape) > 1]
    assert 2 * sum(products) == counter.get_total_flops()


def test_the_forward_pass_has_the_published_4_09_billion_multiply_adds():
    products = {t.name: t.backward_work for t in resnet50_tensors() if len(t.shape) > 1}
    stem = products.pop("conv1.weight")
    assert stem + sum(products.values()) / 2 == pytest.approx(4.09e9, rel=0.001)


def test_batch_norm_is_a_small_part_of_the_work():
    tensors = resnet50_tensors()
    norms = sum(t.backward_work for t in tensors if ".bn" in t.name or t.name.startswith("bn"))
    assert 0 < norms / sum(t.backward_work for t in tensors) < 0.02


def test_the_last_layers_have_most_parameters_but_take_little_time():
    first, *_ = plan_buckets(resnet50_tensors(), 25 << 20)
    assert first.nbytes / (25_557_032 * 4) > 0.25
    assert first.ready < 0.1
