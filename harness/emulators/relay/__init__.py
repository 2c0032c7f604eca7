"""The relay emulator: one userspace process reads and writes the TUN devices of all workers.

process.py     the process: reads packets, and writes them when they are due
switch.py      its model of the network: when each packet is due; segment.py: packets that pass together
"""
