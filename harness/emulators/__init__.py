"""What makes a path slow.

Layout
    plan.py            Network: what to build; pure
    base.py            Emulator: the interface, its statistics, its errors
    relay.py           RelayEmulator: starts and commands the relay process
    relay_process.py   the relay process: TUN devices, the clock, the control socket
    queues.py          the model inside the relay; pure, on a clock that is handed in
    probe.py           measures what was built
"""
