"""Communication between workers.

Layout
    base.py        the interfaces Comm, Work, Clock and Vector, also for what runs beside a worker and for datagrams
    gloo.py        torch.distributed's collectives, and the process group of the user's own program
    direct.py      sends pieces to all workers at once, over the connections of mesh.py; datagram.py: over UDP
    hierarchical.py  inside each site, then across sites; ring.py: from each worker to the next
    work.py        an operation in progress, as the caller sees it; mailbox.py: messages between two ranks
    membership.py  who takes part, while workers are lost and return
    blocks.py      how a vector is cut; tensors.py: its bytes and their reductions
    windows.py     what the buffers of a host let one connection have in flight
    memory.py      all workers in one process: local.py as threads, or on a simulated clock
    clock.py       real and simulated; meter.py: counts bytes, messages and stalls
"""
