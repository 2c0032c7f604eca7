"""`wanbench.testing.check` lets the built-in algorithms pass and catches the usual mistakes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from algorithm_examples import EXAMPLES
from pass_through import PassThrough

from wanbench.testing import CheckError, check
from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Promises
from wanbench.workloads.algorithms.delayed import Delayed
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.algorithms.sparse import Sparse
from wanbench.workloads.algorithms.ssgd import SSGD

BASICS = [
    "unknown parameters are refused",
    "gradients and messages are used only while the algorithm owns them",
    "nothing is in flight after finish",
    "at most in_flight synchronisations are in flight",
]
RESUMED = "a run that continues from a checkpoint is equal to the bit"
CLAIMS = [
    "replicas agree after finish",
    "w after finish equals that of synchronous SGD",
    "m after finish equals that of synchronous SGD",
    "the mean of the replicas moves as in synchronous SGD",
]


@pytest.mark.parametrize(
    ("algorithm", "params"),
    [
        (Delayed, {"delay": 4}),
        (Delayed, {"delay": 20}),
        (Sparse, {"period": 4}),
        (DTS, {"delay": 0, "period": 1}),
        (DTS, {"delay": 5, "period": 3}),
        (DTS, {"delay": 20, "period": 4}),
    ],
)
def test_compensated_algorithms_have_every_property(algorithm, params):
    assert check(algorithm, **params) == [*BASICS, *CLAIMS, RESUMED]


def test_synchronous_sgd_has_every_property_except_the_one_that_buckets_break():
    assert check(SSGD) == [*BASICS[:3], *CLAIMS, RESUMED]


@pytest.mark.parametrize(("kind", "params"), [("local", {}), *EXAMPLES], ids=str)
def test_every_registered_algorithm_has_the_properties_it_claims(kind, params):
    held = check(registry.find(kind), **params)
    assert held[:3] == BASICS[:3]


def test_compression_and_model_space_reduce_the_checked_claims():
    assert check(SSGD, compression={"kind": "topk", "ratio": 0.3})[3:] == [BASICS[3], CLAIMS[0], RESUMED]
    assert check(DTS, delay=3, period=2, compression={"kind": "topk", "ratio": 0.3}) == [*BASICS, CLAIMS[3], RESUMED]
    assert check(DTS, delay=3, period=2, form="model") == [*BASICS, CLAIMS[0], CLAIMS[3], RESUMED]


def test_an_algorithm_that_claims_nothing_is_checked_for_the_basics():
    assert check(Algorithm) == [*BASICS, RESUMED]


def test_parameters_are_checked_first():
    with pytest.raises(AlgorithmError, match=r"^algorithm 'delayed': delay = 0; expected a whole number, 1 or more$"):
        check(Delayed, delay=0)


def failure(algorithm, **params):
    with pytest.raises(CheckError) as error:
        check(algorithm, **params)
    return str(error.value)


def test_late_averages_passed_through_momentum_are_caught():
    message = failure(PassThrough, delay=4)
    assert message.startswith(
        "pass-through-d4 (workers 3, momentum 0.9): expected that replicas agree after finish, "
        "but the relative error is "
    )


class Swallower(Algorithm):
    def __init__(self, **kwargs):
        pass


def test_an_algorithm_that_ignores_unknown_parameters_is_caught():
    assert failure(Swallower) == "Swallower: an unknown parameter is accepted; expected TypeError, so no **kwargs"


class Hidden(Algorithm):
    """Keep state in a place that checkpoints leave out."""

    def start(self, replica):
        super().start(replica)
        count = iter(range(1, 1000))
        self.next = lambda: next(count)

    def stepped(self):
        self.replica.w.mul_(1 - 1 / (1 + self.next()))


class Unstorable(Hidden):
    state = ("count",)

    def start(self, replica):
        super().start(replica)
        self.count = iter(range(4))


def test_an_algorithm_whose_checkpoint_is_incomplete_is_caught():
    assert failure(Hidden).startswith(
        "hidden (workers 1, momentum 0): expected that a run that continues from a checkpoint is equal to the bit, "
        "but it is not; if timing"
    )
    with pytest.raises(AlgorithmError, match=r"^algorithm 'unstorable': count is a range_iterator, which a checkpoint"):
        check(Unstorable)


def test_a_promise_outside_promises_is_refused_and_not_ignored():
    with pytest.raises(AlgorithmError, match=r"^algorithm 'old': agrees is not an attribute; write promises = "):
        type("Old", (Algorithm,), {"agrees": True})


@dataclass
class Lonely(Algorithm):
    promises = Promises(agrees=True)


def test_replicas_that_never_communicate_are_caught():
    assert failure(Lonely).startswith("lonely (workers 3, momentum 0): expected that replicas agree after finish, but")


@dataclass
class Retainer(Algorithm):
    """Add the previous gradient without having copied it."""

    def start(self, replica):
        super().start(replica)
        self.last = None

    def gradient(self, g):
        self.last = g
        return g

    def stepped(self):
        self.replica.w.add_(self.last, alpha=-0.01)


@dataclass
class Hasty(Algorithm):
    """Use an average before it has arrived."""

    def gradient(self, g):
        self.replica.comm.all_reduce(g)
        return g


@pytest.mark.parametrize("algorithm", [Retainer, Hasty])
def test_a_vector_used_while_the_algorithm_does_not_own_it_is_caught(algorithm):
    assert failure(algorithm) == (
        f"{algorithm.kind} (workers 1, momentum 0): expected that gradients and messages are used only "
        "while the algorithm owns them, but w is not finite: one was read before its wait, or kept "
        "without a copy"
    )


@dataclass
class Forgetful(Delayed):
    """Leave the last messages in flight."""

    def finish(self):
        pass


def test_messages_left_in_flight_are_caught():
    assert failure(Forgetful, delay=3) == (
        "forgetful-d3 (workers 1, momentum 0): expected that nothing is in flight after finish, but 3 operations are"
    )


@dataclass
class Modest(DTS):
    """Claim fewer messages in flight than there are."""

    @property
    def in_flight(self):
        return 1


def test_more_messages_in_flight_than_claimed_are_caught():
    assert failure(Modest, delay=8, period=1) == (
        "modest-d8-p1 (workers 1, momentum 0): expected that at most in_flight synchronisations are in "
        "flight, but 9 operations are, more than 2"
    )


def test_an_algorithm_that_refuses_every_setting_does_not_pass():
    @dataclass
    class Choosy(Algorithm):
        def check(self, setting):
            raise AlgorithmError(f"not with {setting.workers}")

    with pytest.raises(AlgorithmError, match=r"^not with 4$"):
        check(Choosy)
