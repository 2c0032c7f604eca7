"""What makes a path slow.

Layout
    plan.py            Network: what to build; pure
    base.py            Emulator: the interface, its statistics, its errors
    process.py         an emulator in a process of its own: started, commanded, ended
    relay.py           RelayEmulator; relay_process.py: TUN devices and the clock
    queues.py          the model inside the relay; pure, on a clock that is handed in
    netem.py           NetemEmulator; netem_process.py: the process that holds the routers
    netem_plan.py      from a Network to routers, cables and queues; pure; netem_commands.py: the same as ip and tc
    netem_kernel.py    carries a plan out; netem_state.py: reads back, counts; netem_plugin.py: what pyroute2 lacks
    netem_detect.py    tries whether this kernel has it
    choice.py          emulators by name, and the one that this host can have
    probe.py           measures what was built
"""
