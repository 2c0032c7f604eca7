"""How each emulator applies an impairment, and how a probe judges it. One file and one field of `Link` per impairment.

Light to import, because the relay process imports it at its start.
"""
