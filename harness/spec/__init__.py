"""What the user writes: a TOML file becomes typed tables, each value parsed once, each mistake one clear line.

Layout
    experiment.py  Spec: an experiment; library.py: those that are built in, experiments/
    tables.py      its tables, each key with its description; table.py: what all tables are; refusals.py: mistakes
    command.py     a command as a workload
    timeline.py    [[timeline]]; trace.py: a recorded trace
    axes.py        the combinations of a sweep
    keys.py        every key in words, for `wanbench list keys` and the reference
"""
