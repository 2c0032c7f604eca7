"""What a worker is: a process with a network of its own that takes commands.

Layout
    worker.py      takes commands, runs jobs, streams rows back; container.py: the same in a container
    forkserver.py  the workers' parent: imports torch once
    program.py     a program of the user's in a worker's network
    probing.py     a worker's side of measuring the network
    namespace.py   a private network stack; tun.py: its device
    control.py     the control channel: JSON lines and file descriptors
"""
