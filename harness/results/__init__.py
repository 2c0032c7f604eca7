"""Results on disk.

Layout
    store.py       RunFolder: a folder per cell and repetition, finished by one rename; its lock, with which one process
                   prepares it
    claims.py      who measures, who is dead, and which process has which repetition
    planned.py     the plan of a run, read from its folder: the rows that belong to the current spec
    columns.py     the catalogue: every column with its type and meaning
    row.py         a repetition as a row; row_files.py: rows that are read, and checked; steps.py: of steps
    scalability.py T(1) / T(N), each host by its own T(1); goodput.py: where workers are lost; target.py: the time to a
                   target; hosts.py: whether hosts are alike
    evidence.py    the data beside a row: learning curves, steps, messages, the measured network
    record.py      recorded runs: the data that figures need, small enough to be kept with the code
    rules.py       the rules of publication in words; verify.py: whether rows and files keep them
    digests.py     digests of all files, with which edits and damage are seen; disk.py: files in one step
"""
