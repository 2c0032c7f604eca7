"""Paths made slow in userspace: one process reads and writes the TUN devices of all workers."""
