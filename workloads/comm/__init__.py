"""Communication between workers.

Layout
    base.py        the interfaces Comm, Work, Clock and Vector; exchange.py: the interface for lossy datagrams
    gloo.py        torch.distributed's collectives; world.py: the process group of the user's own program
    direct.py      sends pieces to all workers at once, over the connections of mesh.py; datagram.py: over UDP
    hierarchical.py  inside each site, then across sites; ring.py: from each worker to the next
    operation.py   a collective of direct in progress; work.py: as the caller sees it; mailbox.py: messages
    membership.py  who takes part, while workers are lost and return; alone.py: no peers yet
    regrouping.py  a membership over TCP; calls.py, reception.py: how its workers find each other; lines.py
    connecting.py  how workers connect; mesh.py: sends and receives frames in one thread
    background.py  the interface for what runs beside a worker, such as a server
    chunks.py      how a vector is cut; tensors.py: its bytes and their reductions; precision.py
    memory.py      all workers in one process: local.py as threads, or on a simulated clock
    blocks.py      from a vector to blocks and datagrams; clock.py; meter.py: counts bytes, messages and stalls
"""
