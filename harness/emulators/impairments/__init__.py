"""What emulators make of each impairment, and how a probe judges it: one file each, a field of `Link` for each.

Light to import: the relay process starts with it.
"""
