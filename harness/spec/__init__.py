"""The spec: a TOML file becomes typed tables. Each value is parsed once, and each mistake is one clear line.

Layout
    experiment.py  Spec: an experiment, and a description of every key; library.py: the built-in ones in experiments/
    tables.py      its tables, each key with its description; refusals.py: error messages
    command.py     a command as a workload; launch_lines.py: lines of torchrun and others for several machines
    timeline.py    [[timeline]], and recorded traces
    axes.py        the combinations of a sweep, and how many there may be
"""
