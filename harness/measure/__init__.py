"""A profile from the output of ping and iperf3, each value with its source.

Layout
    hosts.py      ping and iperf3 against live hosts
    ping.py       the output of ping: which pings were answered, and when (pure)
    iperf3.py     the JSON of iperf3: what the receiver counted, and the intervals (pure)
    readings.py   the values of a path in one output (pure)
    shared.py     paths alone and at once: is there a link that they share? (pure)
    profile.py    the profile as TOML (pure)
"""
