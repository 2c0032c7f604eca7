"""A worker: a process with its own network that takes commands.

Layout
    worker.py      takes commands; container.py: the same in a container
    training.py    runs a job, streams rows back; mortal.py: in a process that can be killed and started again
    joining.py     how a worker joins its group; route.py: the congestion control of its connections
    connections.py the connections of this process: their congestion control and windows
    forkserver.py  the parent of workers, and of processes that simulate: imports modules once
    program.py     runs a user's program in a worker's network
    heartbeat.py   notices when a worker or its program did not run; shortage.py: what held it back
    probing.py     the worker's part of measuring the network
    namespace.py   a private network stack; tun.py: its device
    control.py     the control channel: JSON lines and file descriptors
"""
