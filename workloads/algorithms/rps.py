"""RPS: models averaged in blocks that can be lost; a worker keeps its own block where the average is missing."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.unreliable import Unreliable


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
