"""A module with its data and its goal: that of a user's model, `model = "package.module:make"`, or of a built-in."""

import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import torch
from torch.nn.functional import cross_entropy

from wanbench.workloads.data.datasets import batches
from wanbench.workloads.data.shards import Portion
from wanbench.workloads.models.tensors import ParameterTensor
from wanbench.workloads.seeding import torch_seed


class LearnerError(ValueError):
    """A user's model cannot be imported, made or trained; the message is one line."""


class Learner(NamedTuple):
    """A module, its data and its goal.

    `make(rank, world_size, seed, batch_size)` returns one, or a plain tuple of the same three or four members::

        def make(rank, world_size, seed, batch_size):
            module = torch.nn.Linear(64, 10)
            batches = DataLoader(my_data[rank::world_size], batch_size, shuffle=True)
            return module, batches, torch.nn.functional.cross_entropy

    Before `make`, torch's global random state is set from `seed` alone, so modules built before any other draw start
    equal on all ranks. After it, the state is set from `seed` and `rank`, so shuffling and dropout differ between ranks
    and repeat between runs. `make` has to shard its data by `rank`.

    Attributes:
        module: its trainable parameters are float32, on the CPU. Buffers (batch norm's running statistics)
            stay local to each worker while it trains: no algorithm averages them.
        batches: pairs (inputs, targets); iterated again whenever they end.
        loss: `loss(module(inputs), targets)` is the number to minimise, a mean over the batch.
        evaluate: returns the test accuracy in [0, 1] of `module`; called without autograd and in evaluation mode, after
            training, with the mean of the workers' parameters and buffers at each evaluation, and with rank 0's own.
            None reports no accuracy.
    """

    module: torch.nn.Module
    batches: Iterable[tuple[Any, Any]]
    loss: Callable[[Any, Any], torch.Tensor]
    evaluate: Callable[[], float] | None = None


def learn(portion: Portion, name: str, network: Callable[[torch.Generator], torch.nn.Module], data_set: Any) -> Learner:
    """Build the learner of one worker for a built-in workload.

    Initial parameters depend on the seed alone; the division of the data also on the number of workers; the order of
    batches also on the rank. Each has its own random stream, and none uses the global one.

    Args:
        name: of the workload; its initial weights derive from it. network: builds and initialises the module.
        data_set: its `read` returns the data; see `models.builtins.DataSet`.

    Raises:
        WorkloadError: the folder does not hold the data set, or this machine does not have it.
    """
    fold = () if portion.folds is None else (portion.folds, portion.seed % portion.folds)
    data = data_set.read(portion.folder, *fold)
    module = network(torch.Generator().manual_seed(torch_seed(portion.seed, name, "init")))
    samples = batches(data, portion.batch_size, portion.random(), portion.indices(data.train_labels))
    return Learner(module, samples, _loss, lambda: data.accuracy(module))


def _loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of scores, shape (..., classes), and classes, shape (...)."""
    return cross_entropy(scores.flatten(0, -2), targets.flatten())


def trainable(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the trainable parameters by name, in registration order; a shared one appears once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def parameter_tensors(module: torch.nn.Module) -> tuple[ParameterTensor, ...]:
    """Return the trainable parameters as tensors to send.

    Assumption: the backward pass spends time on each in proportion to its number of elements.
    """
    return tuple(ParameterTensor(name, tuple(p.shape), float(p.numel())) for name, p in trainable(module).items())


def make_learner(path: str, rank: int, world_size: int, seed: int, batch_size: int) -> Learner:
    """Import `make` from `path`, "package.module:make", call it and check what it returns.

    Raises:
        LearnerError: `path` is malformed or cannot be imported, or `make` raises, or it does not return a learner.
    """
    make = _load(path)
    torch.manual_seed(seed)
    try:
        made = make(rank, world_size, seed, batch_size)
    except Exception as error:
        raise LearnerError(f"workload.model: {path!r} raised {type(error).__name__}: {error}") from error
    torch.manual_seed(torch_seed(seed, "model", rank))
    return _checked(path, made)


def _load(path: str) -> Callable[[int, int, int, int], object]:
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise LearnerError(f'workload.model: expected "package.module:make", got {path!r}')
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # importing runs the module, which can raise anything
        problem = f"{type(error).__name__}: {error}"
        raise LearnerError(f"workload.model: cannot import {module_name!r} of {path!r}: {problem}") from error
    make = getattr(module, name, None)
    if not callable(make):
        raise LearnerError(f"workload.model: {module_name!r} has no function {name!r}")
    return cast(Callable[[int, int, int, int], object], make)


def _checked(path: str, made: object) -> Learner:
    where = f"workload.model: {path!r}"
    if not isinstance(made, tuple) or len(made) not in (3, 4):
        raise LearnerError(
            f"{where} returned {_described(made)}; expected (module, batches, loss) or "
            "(module, batches, loss, evaluate)"
        )
    learner = Learner(*made)
    for member, is_right, expected in (
        (learner.module, isinstance(learner.module, torch.nn.Module), "a torch.nn.Module first"),
        (learner.batches, isinstance(learner.batches, Iterable), "batches second"),
        (learner.loss, callable(learner.loss), "a loss function third"),
        (learner.evaluate, learner.evaluate is None or callable(learner.evaluate), "a function fourth"),
    ):
        if not is_right:
            raise LearnerError(f"{where}: expected {expected}, got {_described(member)}")
    parameters = trainable(learner.module)
    if not parameters:
        raise LearnerError(f"{where}: the module has no trainable parameters")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise LearnerError(
                f"{where}: parameter {name!r} is {parameter.dtype} on {parameter.device}; expected torch.float32 on cpu"
            )
    return learner


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"an object of type {type(value).__name__}"
