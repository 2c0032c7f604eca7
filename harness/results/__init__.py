"""Results on disk.

Layout
    store.py       RunFolder: a folder per cell and repetition, finished by one rename
    planned.py     the plan of a run, read from its folder: the rows that belong to the current spec
    columns.py     the catalogue: every column with its type and meaning
    row.py         a repetition as a row; row_schema.py: the check of a stored row; steps.py: rows of steps;
                   scalability.py: T(1) / T(N)
    evidence.py    the data beside a row: learning curves, steps, messages, the measured network
    outcome.py     what was measured at one commit: a line of the file of `check --append`
    record.py      recorded runs: the data that figures need, small enough to be kept with the code
    verify.py      the rules of publication; consistency.py: whether a row agrees with itself
    digests.py     digests of all files, with which edits and damage are seen
"""
