"""The netem emulator: routers in network namespaces, with netem and htb set through pyroute2.

plan.py        the kernel objects that a network needs, as data; kernel.py: builds them
process.py     the process that holds the routers and changes their queues
detect.py      whether this kernel has what it needs
"""
