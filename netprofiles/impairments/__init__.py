"""The effects of a path on packets: one file per impairment, and one field of `Path`.

Each impairment is defined once, with its name and its unit. File formats, spec keys, sweep axes, timelines and
descriptions are derived from this. To add one, add a file here and a field to `Path`; for the emulators and the probe,
add a file in harness/emulators/impairments and a field to `Link`.
"""
