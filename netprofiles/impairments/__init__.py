"""The effects of a path on packets: one file per impairment, and one field of `Path`.

Each impairment is defined once, with its name and its unit. File formats, spec keys, sweep axes, timelines and
descriptions are derived from this. What the emulators do about it, and what the probe expects, is in the file of the
same name in harness/emulators/impairments.
"""
