"""Data sets, and how they are divided over workers.

Layout
    datasets.py    the digits, and batches of any data set; cifar10.py, imagenet.py, text.py: further ones
    shards.py      who has which part; portion.py: what one worker learns from, and its batches
    errors.py      what can be wrong with a workload or its data
"""
