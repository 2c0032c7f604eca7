"""One repetition: a training or a program, on any testbed, judged for fidelity.

Layout
    measure.py     one repetition of any cell: its row
    train.py       of a training: what workers shall do, and what came of it
    command.py     of a command: the user's program, timed; program.py: started as torchrun would; outputs.py, gpus.py
    fidelity.py    was the emulation faithful meanwhile?
    stragglers.py  which worker computes how slowly when
"""
