"""What a vector loses on its way: one file a compressor, found by name in `registry`.

averaging.py     Averager: a stream of vectors whose means are wanted, what of each is sent, and the residual
base.py          Compressor: from a vector to a message and back; Plan: what is sent, where only sizes are known
topk.py          the largest values and their indices            \\
dgc.py           the same with DGC's momentum, clipping, warm-up  |  messages differ in shape: all-gathered
signsgd.py       signs and one scale                              |
qsgd.py          levels of the norm, at random                    |
terngrad.py      -1, 0, 1, at random                             /
chunkwise.py     the same chunks on every worker, in turn        \\
randomk.py       the same random elements on every worker         |  messages add up: all-reduced
powersgd.py      low-rank factors, in two rounds                  |
half.py          fp16, bf16                                      /

The modules of compressors import torch; `averaging`, `base` and `registry` do not, so that planning is quick.
"""
