"""RPS: models averaged in blocks that may be lost; what does not arrive is replaced by what is there."""

from __future__ import annotations

from dataclasses import dataclass

from wanbench.workloads.algorithms.unreliable import Unreliable


@dataclass
class RPS(Unreliable):
    """Reduce-scatter and all-gather of the *models* over an unreliable network, after each local step.

    With x_i of shape (numel,) on worker i, cut into shares owned by one worker each, and for every block of share j::

        v_i = x_i - lr g_i(x_i)                                 # or what the optimiser makes of it
        u_j = (1 / |N_j|) sum_{i in N_j} v_i                    # at owner j; N_j: whose block arrived, and j itself
        x_i <- u_j if it arrives at i, else v_i                 # per block

    Blocks are sent once, in datagrams. A lost block leaves a usable one behind, only locally updated, which the next
    step averages again; replicas therefore differ a little, also after `finish`. Without loss this is averaging the
    models at every step. Momentum stays local.
    """

    kind = "rps"
    source = "Yu, Tang, Renggli, Kassing, Singla, Alistarh, Zhang and Liu, Distributed Learning over Unreliable Networks, ICML 2019"  # noqa: E501
    symbols = {"block": "v^(i,j), of which the paper has one a worker pair"}  # noqa: RUF012

    def stepped(self) -> None:
        """Average the parameters after the local step, as far as blocks arrive.

        Raises:
            CommError: datagrams cannot be sent.
        """
        self._mean.replace(self.replica.w)
