"""Results on disk.

Layout
    store.py       RunFolder: a folder for each cell and repetition, finished by one rename
    planned.py     the plan of a run, read from its folder: which rows belong to the spec as it is
    columns.py     the catalogue: every column with its type and meaning
    row.py         a repetition as a row; row_schema.py: what a stored row must hold; steps.py: rows of steps
    evidence.py    what lies beside a row: learning curves, steps, messages, the measured network
    record.py      recorded runs: what figures need, small enough to be kept with the code
    verify.py      the rules of publication
"""
