"""What makes a path slow.

Layout
    choice.py      emulators by name, and the one that this host can have
    probe/         measures what was built: measure.py with real packets; plan.py, report.py: when, and what it says
    relay/         in userspace: emulator.py for the controller, process.py: TUN devices and the clock, queues.py: the
                   model, on a clock that is handed in; stats.py: what it counts
    netem/         in the kernel: emulator.py for the controller, process.py: holds the routers; plan.py: routers,
                   cables and queues (pure), kernel.py: makes them, state.py: reads them back and counts, plugin.py:
                   what pyroute2 lacks, detect.py: has this kernel got it; commands.py: the same as ip and tc
    process.py     Emulator: one in a process of its own, as the controller sees it; serve.py: that process's side
    plan.py        Network: what to build (pure)
    impairments/   delay, jitter, loss, rate: what becomes of each, and how a probe judges it
    base.py        what an emulator tells about itself, and its errors
"""
