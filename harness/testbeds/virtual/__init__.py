"""The virtual testbed: the same trainer, on a clock that is computed.

Layout
    kernel.py        Simulation: workers as greenlets, one heap of events in integer nanoseconds
    queues.py        queues that many messages share, vectorised
    network.py       VirtualNetwork: up, path and down queues, delay, jitter, loss; Route: who sends to whom
    tcp.py           the model of TCP: slow start, window, what a loss costs
    streams.py       random numbers by counter: one stream a path
    collectives/     one description each: gloo, direct, ring, halving-doubling, hierarchical
    fabric.py        operations in flight, in global time order
    datagrams.py     exchanges of datagrams: which arrive, and when an exchange ends
    simulate.py      all workers of a repetition, each as a greenlet
    changing.py, outages.py   a network that changes meanwhile
    testbed.py       VirtualTestbed: all this behind the interface of the others
"""
