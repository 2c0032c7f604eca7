"""How workers agree: one file an algorithm, found by name in `registry`. No torch: vectors only.

base.py       Algorithm: the four moments of a training step, and what an algorithm promises
compensated.py late averages, corrected; dts.py: exactly, with the derivation; delayed.py, sparse.py, dga.py,
              localsgd.py and cocod.py are cases of it
overlap.py    an anchor, averaged meanwhile
diloco.py     outer steps; streaming.py: by fragments
olco3.py      pipelined, local and compressed: a reconstruction
sgp.py        push-sum gossip; osgp.py: late shares
dpsgd.py      gossip on a ring; ecdpsgd.py: compressed; adpsgd.py: asynchronous
peers.py      who talks to whom; gossip.py: exchanges with neighbours
"""
