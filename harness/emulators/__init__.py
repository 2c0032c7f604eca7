"""What makes a path slow.

Layout
    plan.py         Network: what to build; pure
    impairments/    delay, jitter, loss, rate: what emulators make of each, how a probe judges it; one file each
    base.py         statistics and errors
    process.py      Emulator: a process of its own, started, commanded, ended; serve.py: its other side
    relay/          in userspace: queues.py, the model, pure, on a clock that is handed in; process.py, TUN devices
    netem/          in the kernel: plan.py, routers, cables and queues; commands.py, the same as ip and tc; kernel.py
                    carries it out; state.py reads back and counts; plugin.py, what pyroute2 lacks; detect.py
    probe/          measures what was built
    choice.py       emulators by name, and the one that this host can have
"""
