"""Compressors of messages: one file per compressor, found by name in `registry`.

averaging.py     Averager: the means of a stream of vectors, compressed, with the residuals
base.py          Compressor: from a vector to a message and back; Message: its size
topk.py          the largest values and their indices            \\
chunktopk.py     the largest of every chunk, in two bits each     |
dgc.py           top-k with DGC's momentum, clipping, warm-up     |  messages are not additive: all-gathered
signsgd.py       signs and one scale                              |
qsgd.py          qsgd and terngrad: levels, at random             /
chunkwise.py     the same chunks on every worker, in turn        \\
randomk.py       the same random elements on every worker         |  messages add up: all-reduced
powersgd.py      low-rank factors, in two rounds                  |
half.py          fp16, bf16                                      /
two_way.py       another compressor, both to the owner of a piece and back

The modules of compressors import torch. `averaging`, `base` and `registry` do not, which keeps planning quick.
"""
