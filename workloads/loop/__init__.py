"""Training jobs, and the steps of users' programs.

Layout
    job.py         the job that the controller gives to a worker, and what the worker reports
    train.py       the training loop, the same on every testbed, for every algorithm and workload
    elastic.py     how training goes on when workers are lost or return
    stepping.py    records when the steps of a user's program end; inject/: does so from torch's optimizers
"""
