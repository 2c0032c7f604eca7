"""How each emulator applies an impairment, and how a probe judges it: one file each, and one field of `Link`.

The files have the names of those in `netprofiles/impairments`, which say what people write.

Light to import, because the relay process imports it at its start.
"""
