"""What paths do to packets: one file for each impairment, and `Path` has a field for each.

The record of an impairment says what it is called and how it is written. File formats, spec keys, sweep axes, timelines
and descriptions follow from it. To add one: a file here, its field in `Path`; what an emulator and its probe make of
it: a file in harness/emulators/impairments, its field in `Link`.
"""
