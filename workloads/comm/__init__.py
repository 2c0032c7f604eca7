"""How workers talk.

Layout
    base.py        Comm, Work, Clock and Vector: the interfaces; exchange.py: of datagrams that may be lost
    gloo.py        torch.distributed's collectives; world.py: in a group that the user's own program has formed
    direct.py      pieces to everyone at once, over the connections of mesh.py; datagram.py: over UDP
    memory.py      all workers in one process: local.py as threads, or on a simulated clock
    blocks.py      from a vector to blocks and datagrams; clock.py; meter.py: what is sent, and how long is waited
"""
