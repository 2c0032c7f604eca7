"""RPS and its baseline, gradient sharing: averages in blocks that can be lost, over datagrams that are sent once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any, cast

from wanbench.netprofiles import Delay, Size
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Promises, Replica, Setting
from wanbench.workloads.comm.base import LossyComm, Terms, Vector
from wanbench.workloads.comm.blocks import PAYLOAD_BYTES

COLLECTIVE = "direct"
LONGEST_DEADLINE = Delay.parse("30s")  # a worker that is silent for longer counts as hung
_ELEMENT_BYTES = 4


class Mean:
    """Replaces vectors by their mean over the blocks that arrive.

    For worker i with vector v_i, and each block of share j::

        send it to its owner j;  owner j:  u_j = mean of the blocks that arrived, including its own
        owner j sends u_j to all;  worker i:  v_i <- u_j if it arrived, else v_i is unchanged there

    Args:
        comm: connects the peers; there is at least one.
        like: a vector of the size to be averaged.
        terms: block size and time limits of the two exchanges.
    """

    def __init__(self, comm: LossyComm, like: Vector, terms: Terms) -> None:
        self._comm, self._terms = comm, terms
        size, extra = divmod(like.numel(), comm.world_size)
        ends = itertools.accumulate([0, *(size + (rank < extra) for rank in range(comm.world_size))])
        self._shares = [slice(begin, end) for begin, end in itertools.pairwise(ends)]
        self._peers = [rank for rank in range(comm.world_size) if rank != comm.rank]
        lengths = [share.stop - share.start for share in self._shares]
        self._given = {peer: like.new_zeros(lengths[comm.rank]) for peer in self._peers}
        self._means = {peer: like.new_zeros(lengths[peer]) for peer in self._peers}

    def replace(self, v: Vector) -> None:
        """Average `v`, shape (numel,), in place. Waits for both exchanges.

        Raises:
            CommError: datagrams cannot be sent.
        """
        own = v[self._shares[self._comm.rank]]
        scattered = self._comm.exchange({peer: v[self._shares[peer]] for peer in self._peers}, self._given, self._terms)
        scattered.wait()
        own.copy_(self._of(own, scattered.arrived))
        gathered = self._comm.exchange(dict.fromkeys(self._peers, own), self._means, self._terms)
        gathered.wait()
        for peer, runs in gathered.arrived.items():
            share = v[self._shares[peer]]
            for run in runs:
                share[run].copy_(self._means[peer][run])

    def _of(self, own: Vector, arrived: Mapping[int, Sequence[slice]]) -> Vector:
        """The mean over the blocks that arrived, added in the order of ranks, not of arrival."""
        total, count = own.clone().zero_(), own.clone().zero_()
        ones = own.clone().fill_(1.0)
        for rank in range(self._comm.world_size):
            runs, vector = (arrived[rank], self._given[rank]) if rank != self._comm.rank else ([slice(None)], own)
            for run in runs:
                total[run].add_(vector[run])
                count[run].add_(ones[run])
        return total.div_(count)


@dataclass
class Unreliable(Algorithm):
    """Sends blocks in datagrams, once each; the base class of algorithms that do.

    Attributes:
        block: size of a block, a multiple of 4 bytes. "1456B" is the largest that fits one datagram. A larger block
            takes several datagrams, and is lost if any of them is.
        deadline: maximum wait in each of a step's two exchanges, such as "1s"; at most 30 s.
        silence: wait after the last datagram once every peer has sent something, such as "50ms".
    """

    kind = "unreliable"
    promises = Promises(goes_on=True)
    when_lost = "its group of datagrams cannot be formed again, so a timeline cannot kill its workers"
    without_a_peer = "steps continue without that peer's blocks, after the deadline of each exchange"
    least_workers = 2
    datagrams = True

    block: str = f"{PAYLOAD_BYTES}B"
    deadline: str = "1s"
    silence: str = "50ms"

    @property
    def terms(self) -> Terms:
        """The parameters as numbers."""
        block, deadline, silence = Size.parse(self.block), Delay.parse(self.deadline), Delay.parse(self.silence)
        return Terms(block.bytes, deadline.ns, silence.ns)

    def _check(self, name: str, value: object, item: Field[Any]) -> None:
        super()._check(name, value, item)
        number = self._parsed(name, value, Size).bytes if name == "block" else self._parsed(name, value, Delay).ns
        if not number:
            self.refuse(name, value, "more than 0")
        if name == "deadline" and number > LONGEST_DEADLINE.ns:
            self.refuse(name, value, f"at most {LONGEST_DEADLINE}")
        if name == "block" and number % _ELEMENT_BYTES:
            self.refuse(name, value, f"a multiple of {_ELEMENT_BYTES} bytes, the size of a parameter")

    def __post_init__(self) -> None:
        """Check each parameter, then all together. Raises: AlgorithmError."""
        super().__post_init__()
        if self.terms.silence_ns > self.terms.deadline_ns:
            self.refuse("silence", self.silence, f"at most the deadline, {self.deadline}")

    def check(self, setting: Setting) -> None:
        """As `Algorithm.check`; it needs the direct collective, and a deadline that datagrams can meet."""
        super().check(setting)
        if setting.collective != COLLECTIVE:
            raise AlgorithmError(
                f"algorithm '{self.kind}' sends each block to its owner and back, as collective '{COLLECTIVE}' does; "
                f"expected comm.collective = '{COLLECTIVE}', got '{setting.collective}'"
            )
        one_way_ms = setting.rtt_s * 1e3 / 2
        if self.terms.deadline_ns <= one_way_ms * 1e6:
            self.refuse("deadline", self.deadline, f"more than {one_way_ms:g} ms, the one-way delay of a datagram")

    def start(self, replica: Replica) -> None:
        super().start(replica)
        self._mean = Mean(cast(LossyComm, replica.comm), replica.w, self.terms)  # of `datagrams`


@dataclass
class RPS(Unreliable):
    """Tolerates packet loss: averages models over datagrams, once each.

    After each local step, a reduce-scatter and an all-gather of the *models* over an unreliable network. With x_i of
    shape (numel,) on worker i, cut into shares owned by one worker each, and for every block of share j::

        v_i = x_i - lr g_i(x_i)                                 # or another optimiser's step
        u_j = (1 / |N_j|) sum_{i in N_j} v_i                    # at owner j; N_j: j and the workers whose block arrived
        x_i <- u_j if it arrives at i, else v_i                 # per block

    Blocks are sent once, in datagrams. Where a block is lost, the worker keeps its locally updated one, and the next
    step averages it again. Replicas therefore differ a little, even after `finish`. Without loss, the models are
    averaged at every step. Momentum stays local.
    """

    kind = "rps"
    source = "Yu, Tang, Renggli, Kassing, Singla, Alistarh, Zhang and Liu, Distributed Learning over Unreliable Networks, ICML 2019"  # noqa: E501
    symbols = {"block": "v^(i,j); the paper has one per worker pair"}  # noqa: RUF012
    examples = ({}, {"block": "8B"})

    def stepped(self) -> None:
        """Average the parameters after the local step, over the blocks that arrive.

        Raises:
            CommError: datagrams cannot be sent.
        """
        self._mean.replace(self.replica.w)


@dataclass
class GradientSharing(Unreliable):
    """Baseline of RPS: averages gradients over datagrams that can be lost.

    Before each step, a reduce-scatter and an all-gather of the *gradients*, as `rps` does with models. For gradients
    g_i of shape (numel,) on worker i, and every block of share j::

        u_j = (1 / |N_j|) sum_{i in N_j} g_i                    # at owner j; N_j: j and the workers whose block arrived
        x_i <- x_i - lr (u_j if it arrives at i, else g_i)      # per block

    Without loss this is synchronous SGD. With loss, workers apply different gradients, nothing corrects the difference,
    and their models drift apart.
    """

    kind = "gradient-sharing"
    source = "Yu et al., ICML 2019 (the poster's baseline, 'SGD')"
    symbols = {"block": "as rps"}  # noqa: RUF012
    examples = ({}, {"block": "400B"})

    def gradient(self, g: Vector) -> Vector:
        """Return `g`, shape (numel,), averaged in place over the blocks that arrive.

        Raises:
            CommError: datagrams cannot be sent.
        """
        self._mean.replace(g)
        return g
