"""What makes a path slow.

Layout
    plan.py            Network: what to build; pure
    base.py            Emulator: the interface, its statistics, its errors
    process.py         an emulator in a process of its own: started, commanded, ended
    relay.py           RelayEmulator; relay_process.py: TUN devices and the clock
    queues.py          the model inside the relay; pure, on a clock that is handed in
    choice.py          emulators by name, and the one that this host can have
    probe.py           measures what was built
"""
