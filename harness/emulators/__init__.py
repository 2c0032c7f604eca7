"""The emulators, which make paths slow.

Layout
    emulator.py    Emulator: the controller's side of an emulator process, with its statistics; serve.py: the process's
    choice.py      the emulators by name, and the choice for this host
    plan.py        EmulatedNetwork: what to build (pure)
    probe.py       measures the built network with real packets, and judges it
    relay/         emulates in userspace: process.py (TUN devices and the clock), switch.py (the model, on an injected
                   clock), segment.py (packets that pass together)
    netem/         emulates in the kernel: process.py (holds the routers, reads them back and counts), plan.py (routers,
                   cables and queues as data, and as ip and tc commands), kernel.py (creates them, with what pyroute2
                   lacks), detect.py (tests this kernel)
    impairments.py delay, jitter, loss and rate: how each emulator applies it, and how a probe judges it
"""
