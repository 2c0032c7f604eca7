"""A worker: a process with its own network that takes commands.

Layout
    worker.py      takes commands; container.py: the same in a container
    training.py    runs a job: joins its group, streams rows back; can be killed and started again
    regrouping.py  finds the workers that are alive when others were lost, or have returned
    program.py     runs a user's program in a worker's network; agent.py: commands of other workers
    forkserver.py  the parent of workers, and of processes that simulate: imports modules once
    isolation.py   a worker's own processes, names and memory; descendants.py: ends what a process has started
    namespace.py   a private network stack; tun.py: its device; configuration.py: what was changed in it
    heartbeat.py   notices when a worker or its program did not run, and what held it back
    probing.py     the worker's part of measuring the network; connections.py: what limited its TCP connections
    control.py     the control channel: JSON lines and file descriptors; finished.py: the last message of a worker
"""
