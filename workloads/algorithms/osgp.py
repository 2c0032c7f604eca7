"""Overlap SGP: training goes on while one round of shares is in flight."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Promises, Replica, at_least
from wanbench.workloads.algorithms.gossip import exponential, turns
from wanbench.workloads.algorithms.inbox import Inbox, has_ended, note
from wanbench.workloads.algorithms.sgp import FOREVER, PushSum
from wanbench.workloads.comm.base import Vector, Work


@dataclass
class OSGP(PushSum):
    """SGP that hides latency: shares can arrive up to D steps late.

    One round of shares is in flight at a time, as in the authors' code. At the end of each step node i adds the shares
    that have arrived. A round that was sent D steps ago is waited for. When the round is over, node i begins the next::

        (x_i, omega_i) <- (x_i, omega_i) + sum of the shares that arrived
        (x_i, omega_i) <- s (x_i, omega_i), and s (x_i, omega_i) goes to the out-neighbours        after a round
        z_i = x_i / omega_i

    The weight omega travels before its share, shape (numel,), so z_i is correct whenever the share arrives. The number
    of a round decides its peers. Nodes can differ in their rounds, but the node with the fewest never waits: all others
    have sent their shares of its round. `finish` tells the out-neighbours that no more shares come, and takes what the
    in-neighbours have sent until they say the same. Messages of `gloo` cannot be polled: there, a round takes D steps.

    With `wait`, a round is over after that time; late shares are added when they arrive.

    Attributes:
        delay: D, in steps; 1 or more.
        peers: m, out-neighbours per round; 1 or more, below the number of workers.
        wait: maximum wait for each share that is due, such as "200ms"; "forever" is unlimited.
    """

    kind = "osgp"
    source = "Assran, Loizou, Ballas and Rabbat, Stochastic Gradient Push, ICML 2019 (overlap SGP)"
    symbols = {"delay": "tau", "peers": "peers per iteration"}  # noqa: RUF012
    examples = ({"delay": 2},)
    state = ("_x", "_omega")

    delay: int = field(default=1, metadata=at_least(1))
    peers: int = field(default=1, metadata=at_least(1))
    wait: str = FOREVER

    @property
    def promises(self) -> Promises:
        """Shares are added on arrival, so timing changes the result."""
        return Promises(repeats=False, goes_on=self.wait_s is not None)

    @property
    def in_flight(self) -> int:
        """One round, whatever D is."""
        return 1

    def operations(self, world_size: int) -> int:
        """Send and receive a weight and a share per peer."""
        return 4 * self.peers

    def start(self, replica: Replica) -> None:
        super().start(replica)
        comm = replica.comm
        self._x, self._omega = replica.w.clone(), note(1.0)
        size = comm.world_size
        rounds = [exponential(comm.rank, turn, size, self.peers) for turn in range(turns(size, self.peers))]
        self._outs = sorted({peer for outs, _ in rounds for peer in outs})
        ins = sorted({peer for _, ins in rounds for peer in ins})
        self._inboxes = {peer: Inbox(comm, peer, replica.w) for peer in ins}
        self._leaving: list[Work] = []  # sends of rounds that are over
        self._begin_anew()

    def stepped(self) -> None:
        """Add the local step to the numerator, add the shares that have arrived or are due, and push the next.

        Raises:
            CommError: a peer is gone.
        """
        self._add_step()
        self._age += 1
        for peer in list(self._owed):
            self._take(peer, 0.0)
        if self._age >= self.delay:
            self._end_round()
        if not self._round_in_flight():
            self._push()
        self._leaving = [work for work in self._leaving if not has_ended(work)]
        self._debias()

    def finish(self) -> None:
        """Take all shares, without a time limit. As always with gossip, replicas still differ afterwards.

        Raises:
            CommError: a peer is gone.
        """
        comm = self.replica.comm
        self._leaving += [comm.send(note(0.0), peer) for peer in self._outs]
        for inbox in self._inboxes.values():
            while not inbox.ended:
                self._add(inbox, inbox.take(None))
            inbox.ended = False
        for work in self._sends + self._leaving:
            work.wait()
        self._leaving = []
        self._begin_anew()
        self._debias()

    def _begin_anew(self) -> None:
        """Nothing is in flight, on any node: the next round is the first."""
        self._rounds = self._age = 0
        self._sends: list[Work] = []
        self._due: list[int] = []  # in-neighbours of the round in flight
        self._owed: Counter[int] = Counter()  # by in-neighbour: shares that have not arrived, late ones included

    def _push(self) -> None:
        comm = self.replica.comm
        outs, self._due = exponential(comm.rank, self._rounds, comm.world_size, self.peers)
        self._rounds, self._age = self._rounds + 1, 0
        share = 1.0 / (len(outs) + 1)
        self._x.mul_(share)
        self._omega.mul_(share)
        self._sends = [comm.send(part, peer) for peer in outs for part in (self._omega, self._x)]
        self._owed.update(self._due)

    def _round_in_flight(self) -> bool:
        self._sends = [work for work in self._sends if not has_ended(work)]
        return bool(self._sends) or any(self._owed[peer] for peer in self._due)

    def _end_round(self) -> None:
        """Wait for the round in flight. With `wait`, what is late then is no longer part of it."""
        for peer in self._due:
            self._take(peer, self.wait_s)
        if self.wait_s is None:
            for work in self._sends:
                work.wait()
        else:
            self._leaving += self._sends
        self._sends, self._due = [], []

    def _take(self, peer: int, wait_s: float | None) -> None:
        """Add the shares that a peer owes, as far as each arrives within `wait_s`."""
        inbox = self._inboxes[peer]
        while self._owed[peer] and self._add(inbox, inbox.take(wait_s)):
            self._owed[peer] -= 1
        if inbox.ended:
            self._owed[peer] = 0

    def _add(self, inbox: Inbox, share: Vector | None) -> bool:
        """Add a share with its weight; False without one."""
        if share is None:
            return False
        self._x.add_(share)
        self._omega.add_(inbox.note)
        return True
