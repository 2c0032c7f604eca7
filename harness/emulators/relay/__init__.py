"""The relay emulator: one userspace process reads and writes the TUN devices of all workers."""
