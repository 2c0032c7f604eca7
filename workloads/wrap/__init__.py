"""An algorithm in a user's own training loop: `wrap`, and `attach` for DistributedDataParallel.

wrapped.py     `wrap`: by hooks of the optimizer
attach.py      `attach`: in place of the average of DistributedDataParallel
flat.py        the parameters of an optimizer as flat vectors
"""
