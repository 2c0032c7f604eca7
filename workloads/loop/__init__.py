"""Training jobs, and the steps of users' programs.

Layout
    job.py         the job that the controller gives to a worker
    session.py     sets a job up and runs it, both in a worker process and on the simulated clock
    train.py       the training loop, the same on every testbed, for every algorithm and workload
    elastic.py     how training goes on when workers are lost or return
    stepping.py    records when the steps of a user's program end; inject/: does so from torch's optimizers
"""
