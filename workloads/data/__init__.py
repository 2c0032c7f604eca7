"""Data sets, and their division among the workers.

Layout
    datasets.py    the digits, and what data sets have in common; mnist.py, cifar10.py, imagenet.py, stdlib.py: others
    shards.py      divides the samples among workers: the rule, and the portion of each
"""
