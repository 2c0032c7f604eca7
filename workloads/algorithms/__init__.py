"""How workers agree: one file per algorithm, found by name in `registry`. No torch: vectors only.

ssgd.py         the gradients of all workers, averaged in each step
base.py         Algorithm: the four moments of a training step, and what an algorithm promises
compensated.py  late averages, corrected; dts.py: the exact form and its derivation; delayed.py, sparse.py, dga.py,
                localsgd.py and cocod.py: special cases
overlap.py      an anchor whose average is computed during local steps
diloco.py       outer steps; streaming.py: the same in fragments; eager.py: a round late; sparseloco.py: compressed
async_local_sgd.py  a server for workers without a common pace; halos.py: one in each region; server.py: their mail
olco3.py        pipelined, local and compressed: a reconstruction
sgp.py          push-sum gossip; osgp.py: the same with late shares
dpsgd.py        gossip on a ring; ecdpsgd.py: compressed; adpsgd.py: asynchronous
rps.py          models averaged over lossy datagrams, and gradients, its baseline
gossip.py       what gossip shares, its graphs and exchanges; inbox.py: messages whose number is not known
"""
