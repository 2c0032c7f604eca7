"""Results on disk.

Layout
    store.py       RunFolder: a folder per cell and repetition, finished by one rename; cell_folders.py: which is which;
                   links.py: what a folder cannot contain
    planned.py     the plan of a run, read from its folder: the rows that belong to the current spec
    columns.py     the catalogue: every column with its type and meaning
    row.py         a repetition as a row; row_schema.py: the check of a stored row; row_files.py: its reading;
                   steps.py: rows of steps; scalability.py: T(1) / T(N); step_times.py: medians by cell
    evidence.py    the data beside a row: learning curves, steps, messages, the measured network
    record.py      recorded runs: the data that figures need, small enough to be kept with the code
    verify.py      the rules of publication; consistency.py: whether a row agrees with itself
    digests.py     digests of all files, with which edits and damage are seen; disk.py: waits until files are on disk
"""
