"""The virtual testbed: the same trainer on a simulated clock.

Layout
    kernel.py        Simulation: workers as greenlets, one heap of events in integer nanoseconds
    queues.py        queues that many messages share, vectorised
    network.py       VirtualNetwork: up, path and down queues, delay, jitter, loss; Route: senders and receivers
    tcp.py           the model of TCP: what windows and losses add to a message; bbr.py: the same under BBR
    round_trips.py   BBR's measurements of the round trip, which hold up what it sends
    sender.py        a connection followed packet by packet; packets.py: its path, and what is on its way
    followed.py      which connections are followed, and which of them share a sender
    congestion.py    Reno and CUBIC: how windows open and close
    earlier.py       messages that follow one another on a connection
    streams.py       random numbers by counter, one stream per path
    collectives/     one model each: gloo, direct, ring, hierarchical
    fabric.py        operations in flight, in global time order
    datagrams.py     exchanges of datagrams: which datagrams arrive, and when an exchange ends
    membership.py    who takes part while workers are killed and return; epoch.py: the fabric until the next change
    simulate.py      all workers of a repetition, each as a greenlet
    changing.py, outages.py   a network that changes during training
    simulator.py     simulates training runs, also as a process; request.py: what it has to know
    testbed.py       VirtualTestbed: the common interface of testbeds
"""
