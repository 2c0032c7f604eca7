"""The virtual testbed: the same trainer on a simulated clock.

Layout
    kernel.py        Simulation: workers as greenlets, one heap of events in integer nanoseconds
    queues.py        queues that many messages share, vectorised
    network.py       VirtualNetwork: queues, delay, jitter, loss, outages; Route: senders and receivers
    tcp.py           the model of TCP: what windows and losses add to a message; bbr.py: the same under BBR
    sender.py        a connection followed packet by packet, and which connections share one
    congestion.py    Reno and CUBIC: how windows open and close
    noise.py         jitter and loss of messages; streams.py: random numbers by counter, one stream per path
    collectives.py   a model of each: direct, gloo, ring, hierarchical
    fabric.py        operations in flight, in global time order
    datagrams.py     exchanges of datagrams: which datagrams arrive, and when an exchange ends
    membership.py    who takes part while workers are killed and return, and the fabric until the next change
    simulate.py      all workers of a repetition, each as a greenlet, in a network that changes; also as a process
    testbed.py       VirtualTestbed: the common interface of testbeds
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
