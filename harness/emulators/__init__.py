"""The emulators, which make paths slow.

Layout
    choice.py      the emulators by name, and the choice for this host
    probe/         measures the built network: measure.py sends real packets, plan.py schedules them, report.py judges
    relay/         emulates in userspace: emulator.py (controller side), process.py (TUN devices and the clock),
                   queues.py (the model, on an injected clock), stats.py (counters)
    netem/         emulates in the kernel: emulator.py (controller side), process.py (holds the routers), plan.py
                   (routers, cables and queues; pure), kernel.py (creates them), state.py (reads them back and counts),
                   plugin.py (what pyroute2 lacks), detect.py (tests this kernel), commands.py (ip and tc commands)
    process.py     Emulator: the controller's side of an emulator process; serve.py: the process's side
    plan.py        EmulatedNetwork: what to build (pure)
    impairments/   delay, jitter, loss and rate: how each emulator applies it, and how a probe judges it
    base.py        statistics and errors of emulators
"""
