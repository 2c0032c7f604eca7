"""Residual networks for small images: listed without torch as they are built, with the norm that is asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from wanbench.workloads.models.resnet import ThinResNet

IMAGES = [(1, 28, 28), (1, 1, 40), (3, 32, 32)]


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("image", IMAGES, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_the_tensors_listed_without_torch_are_those_of_the_module(image, stride, norm):
    resnet = ThinResNet(image, stride=stride, norm=norm)
    module = resnet.network(torch.Generator().manual_seed(1))
    assert [(t.name, t.shape) for t in resnet.tensors()] == [(n, tuple(p.shape)) for n, p in module.named_parameters()]
    assert module(torch.zeros(2, *image)).shape == (2, 10)


def test_the_work_of_a_convolution_is_that_of_its_output():
    """7 x 7 pixels of 16 channels, each from 3 x 3 of 8: once for the weight's gradient, once for the input's."""
    work = {tensor.name: tensor.backward_work for tensor in ThinResNet(IMAGES[0], stride=2).tensors()}
    assert work["layer2.0.conv1.weight"] == 2 * 7 * 7 * 16 * 9 * 8


@pytest.mark.parametrize(("norm", "part"), [("batch", nn.BatchNorm2d), ("group", nn.GroupNorm), ("none", nn.Identity)])
def test_every_convolution_is_followed_by_the_norm_or_has_a_bias(norm, part):
    module = ThinResNet(IMAGES[0], norm=norm).network(torch.Generator().manual_seed(1))
    convolutions = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == sum(isinstance(other, part) for other in module.modules()) == 7
    assert {convolution.bias is not None for convolution in convolutions} == {norm == "none"}


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_the_scores_of_a_new_network_are_small_with_every_norm(norm):
    module = ThinResNet(IMAGES[0], norm=norm).network(torch.Generator().manual_seed(1))
    scores = module(torch.randn(64, 1, 28, 28, generator=torch.Generator().manual_seed(2)))
    assert float(scores.detach().std()) < 0.5
