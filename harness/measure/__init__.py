"""A profile from the output of ping and iperf3, each value with its source.

Layout
    hosts.py      ping and iperf3 against live hosts
    readings.py   the values in their output (pure)
    shared.py     paths alone and at once: is there a link that they share? (pure)
    profile.py    the profile as TOML (pure)
"""
