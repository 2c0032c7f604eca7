"""Jitter and loss: the random draws of each path, from its own stream."""

import math
from itertools import pairwise
from random import Random
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray

from wanbench.harness.emulators.impairments import Losses, in_bursts
from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.testbeds.virtual import Bools, Floats, Ints, streams
from wanbench.harness.testbeds.virtual.queues import in_turn, lasts, segments

_PLAUSIBLE_SIGMAS = 6
_BELOW_1 = 1 - 2**-53  # the largest chance with a finite quantile
_LEAST_LOG = 600.0  # of a chance that is computed; a double has at least exp(-708)


class PathStreams:
    """The jitter and loss of every directed path, its number of draws so far, and its latest arrival.

    `loss` is that of independent losses. `bursts` has the paths that lose packets in bursts instead.

    Args:
        network: the paths; path (a, b) has index a x sites + b.
        seed: seed of all streams; a path's stream is named after its sites.
    """

    def __init__(self, network: EmulatedNetwork, seed: int) -> None:
        sites = len(network.sites)
        self._seed = seed
        self.bursts: dict[int, Losses] = {}
        self._random: dict[int, Random] = {}
        self.jitter_ns, self.loss = np.zeros(sites * sites), np.zeros(sites * sites)
        self._keys = np.zeros(sites * sites, np.uint64)
        self.update(network)
        self._drawn = np.zeros(sites * sites, np.uint64)
        self._latest = np.zeros(sites * sites, np.int64)

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. Streams continue. A path that loses everything has an outage instead."""
        sites = len(network.sites)
        for (src, dst), link in network.links.items():
            index = src * sites + dst
            alone = link.loss < 1 and not in_bursts(link)
            self.jitter_ns[index], self.loss[index] = link.jitter_ns, link.loss if alone else 0.0
            if (link.jitter_ns or link.loss) and not self._keys[index]:
                self._keys[index] = streams.key(self._seed, network.sites[src], network.sites[dst])
            if not in_bursts(link):
                self.bursts.pop(index, None)
            elif index not in self.bursts or self.bursts[index].values != (link.loss, link.loss_burst):
                random = self._random.setdefault(index, Random(int(self._keys[index])))
                self.bursts[index] = Losses(link.loss, link.loss_burst, random)

    def draw(self, links: Ints, nth: NDArray[np.uint64], heads: Ints, counts: NDArray[np.uint64]) -> Floats:
        """Draw the next number in (0, 1) of each message's path.

        Args:
            links: path of each message.
            nth: number of earlier messages of this round on the same path.
            heads: the distinct paths.
            counts: number of their messages in this round.
        """
        numbers = self._drawn[links] + nth
        self._drawn[heads] += counts
        return streams.uniform(self._keys[links], numbers)

    def lost(self, link: int, count: int) -> Bools:
        """Draw whether each of the next `count` packets of a path is lost."""
        if link in self.bursts:
            in_burst = np.zeros(count, np.bool_)
            in_burst[self.bursts[link].of(count)] = True
            return in_burst
        if not self.loss[link]:
            return np.zeros(count, np.bool_)
        numbers = self._drawn[link] + np.arange(count, dtype=np.uint64)
        self._drawn[link] += np.uint64(count)
        lost: Bools = streams.uniform(np.full(count, self._keys[link]), numbers) < self.loss[link]
        return lost

    def in_order(self, links: Ints, departure: Ints, jitter: Ints) -> Ints:
        """Return the arrivals, without the constant delay, such that no message overtakes another on its path.

        A later round can have earlier departures. So an arrival is held back only by messages that it can have met:
        those no further ahead than jitter can explain.
        """
        order = np.lexsort((departure, links))
        links, arrival = links[order], (departure + jitter)[order]
        segment, first = segments(links)
        heads = links[first]
        latest = self._latest[heads]
        reach = _PLAUSIBLE_SIGMAS * self.jitter_ns[heads]
        latest = np.where(latest - arrival[first] <= reach, latest, 0)
        arrival = in_turn(arrival, np.zeros_like(arrival), segment, first, latest)
        self._latest[heads] = np.maximum(self._latest[heads], arrival[lasts(first, len(links))])
        out = np.empty_like(arrival)
        out[order] = arrival
        return out


class MessageNoise:
    """The draws for the messages of one kind of round.

    A message of many packets has arrived when its last packet has, which waits for those before it. So its jitter is
    the largest of several draws: one for each packet sent within one standard deviation of jitter.

    Args:
        links: path of each message.
        delay: one-way delay of each message.
        packets: number of packets of each message.
        slowest_ns: service time of each message in its slowest queue.
        loses: whether to draw losses; the caller draws those of datagrams.
    """

    def __init__(
        self, paths: PathStreams, links: Ints, delay: Ints, packets: Ints, slowest_ns: Ints, *, loses: bool = True
    ) -> None:
        self._paths, self._links, self._delay, self._packets = paths, links, delay, packets
        self._sigma, self._loss = paths.jitter_ns[links], paths.loss[links]
        self._jitters, self._loses = bool(self._sigma.any()), loses and bool(self._loss.any())
        self._in_bursts = [i for i, link in enumerate(links.tolist()) if loses and link in paths.bursts]
        together = np.where(slowest_ns > 0, packets * self._sigma / np.maximum(slowest_ns, 1), packets)
        self._one_over_close = 1 / np.clip(together, 1, np.maximum(packets, 1))
        self._any_lost = -np.expm1(packets * np.log1p(-self._loss))
        order = np.argsort(links, kind="stable")
        segment, first = segments(links[order])
        self._nth = np.empty(len(links), np.uint64)
        self._nth[order] = (np.arange(len(links)) - first[segment]).astype(np.uint64)
        self._heads = links[order][first]
        self._counts = np.diff(np.r_[first, len(links)]).astype(np.uint64)

    def draw(self) -> tuple[Ints | None, Ints | None]:
        """Draw (losses, deviation from the delay) of each message; None is all 0.

        The losses have two rows: the number of lost packets, and 1 if the last one is lost.

        Independent losses are counted by packets. In bursts each run of lost packets is one loss, because TCP sends
        all of it again within one round trip, and halves its window once.
        """
        jitter = losses = None
        if self._jitters:
            chance = np.minimum(self._uniform() ** self._one_over_close, _BELOW_1)
            largest = torch.special.ndtri(torch.from_numpy(chance)).numpy()  # quantiles of the normal distribution
            jitter = np.maximum(np.rint(largest * self._sigma).astype(np.int64), -self._delay)
        if self._loses:
            uniform = self._uniform()
            hit = np.flatnonzero(uniform < self._any_lost)
            if len(hit):
                losses = np.zeros((2, len(uniform)), np.int64)
                for i in hit.tolist():
                    quantile, packets = float(uniform[i] / self._any_lost[i]), int(self._packets[i])
                    losses[0, i] = lost_packets(quantile, packets, float(self._loss[i]))
                    # One draw serves twice: its last digits decide whether the last packet is lost.
                    losses[1, i] = (uniform[i] * 1e9) % 1 < losses[0, i] / packets
        for i in self._in_bursts:
            packets = int(self._packets[i])
            if lost := self._paths.bursts[int(self._links[i])].of(packets):
                losses = np.zeros((2, len(self._links)), np.int64) if losses is None else losses
                losses[:, i] = 1 + sum(after > before + 1 for before, after in pairwise(lost)), lost[-1] == packets - 1
        return losses, jitter

    def _uniform(self) -> Floats:
        return self._paths.draw(self._links, self._nth, self._heads, self._counts)


def lost_packets(quantile: float, packets: int, loss: float) -> int:
    """The quantile, in (0, 1), of the number of lost packets, given that at least one is lost."""
    mean = packets * loss
    if -packets * math.log1p(-loss) > _LEAST_LOG:  # none is lost with a chance that no float can hold
        return min(max(1, round(NormalDist(mean, math.sqrt(mean * (1 - loss))).inv_cdf(quantile))), packets)
    chance = total = (1 - loss) ** packets
    target = total + quantile * (1 - total)
    lost = 0
    while total < target and lost < packets:
        chance *= (packets - lost) / (lost + 1) * loss / (1 - loss)
        lost += 1
        total += chance
    return max(lost, 1)
