"""A profile from the output of ping and iperf3, each value with its source. Pure.

Layout
    ping.py       the output of ping: which pings were answered, and when
    iperf3.py     the JSON of iperf3: what the receiver counted, and the intervals
    profile.py    the values of a path in such outputs, links that paths share, and the profile as TOML
"""
