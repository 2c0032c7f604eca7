"""Data sets, and their division among the workers.

Layout
    datasets.py    the digits, and batches of any data set; cifar10.py, imagenet.py, text.py: further data sets
    shards.py      divides the samples among workers: the rule, and the portion of each
    errors.py      WorkloadError
"""
