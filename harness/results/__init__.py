"""Results on disk.

Layout
    store.py       RunFolder: a folder per cell and repetition, finished by one rename; cell_folders.py: which is which;
                   links.py: what a folder cannot contain
    lock.py        one process prepares a folder; workers.py: who measures, and who is dead;
                   claims.py: which process has which repetition
    planned.py     the plan of a run, read from its folder: the rows that belong to the current spec
    columns.py     the catalogue: every column with its type and meaning; conditions.py: its first part
    row.py         a repetition as a row; row_schema.py, row_files.py: the check of a stored one; steps.py: of steps;
                   scalability.py: T(1) / T(N), each host by its own T(1); hosts.py: whether hosts are alike;
                   step_times.py: the medians that they need, kept while a run goes on
    evidence.py    the data beside a row: learning curves, steps, messages, the measured network
    outcome.py     what was measured at one commit: a line of the file of `check --append`
    record.py      recorded runs: the data that figures need, small enough to be kept with the code
    verify.py      the rules of publication; consistency.py: whether a row agrees with itself
    digests.py     digests of all files, with which edits and damage are seen; disk.py: files in one step
"""
