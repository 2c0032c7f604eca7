"""One repetition: a training run or a program, on any testbed, judged for fidelity.

Layout
    measure.py     a repetition of any cell
    train.py       a repetition of a training run: the jobs of the workers, and the row of results
    command.py     a repetition of a command: the user's program, timed
    sources.py     which code a repetition ran, and whether it changed meanwhile
    program.py     starts a program as torchrun would; outputs.py and gpus.py: its output and its GPUs
    fidelity.py    judges whether the emulation was faithful during the repetition
    stragglers.py  workers that are slow for a time
"""
