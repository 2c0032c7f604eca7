"""A training job, and how steps are told.

Layout
    job.py         what the controller asks of a worker
    session.py     around a job: the same in a worker process and on the simulated clock
    train.py       the loop: the same on every testbed, for every algorithm and workload
    stepping.py    when the steps of a user's own program end; inject/: told by torch's optimizers instead
"""
