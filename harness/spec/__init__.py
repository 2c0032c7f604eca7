"""The spec: a TOML file becomes typed tables. Each value is parsed once, and each mistake is one clear line.

Layout
    experiment.py  Spec: an experiment; library.py: the built-in ones in experiments/
    tables.py      its tables, each key with its description; table.py: their base class; refusals.py: error messages
    command.py     a command as a workload
    timeline.py    [[timeline]]; trace.py: a recorded trace
    bounds.py      how large a sweep may be
    axes.py        the combinations of a sweep
    keys.py        a description of every key, for `wanbench list keys` and the reference
"""
