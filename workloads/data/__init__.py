"""Data sets, and their division among the workers.

Layout
    datasets.py    what data sets have in common; digits.py, mnist.py, mnist1d.py, cifar10.py, imagenet.py, stdlib.py
    shards.py      divides the samples among workers: the rule, and the portion of each
"""
