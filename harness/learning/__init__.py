"""The learning library: loss and accuracy by step, recorded once for every method.

If a method's schedule does not depend on the network, a trajectory is a function of algorithm, settings and seed. The
time to a target on any network is then its steps times the step time there.

Layout
    design.py      Design: which settings, conditions, learning rates and seeds; the built-in ones in designs/
    campaign.py    the cells of a design; tunes learning rates, trains every seed, and measures step times; resumable
    cost.py        what a design costs, before it runs
    recording.py   Recording: the trajectories of a design in one small file; the recorded ones in recorded/
    summary.py     the lines of `wanbench list learning`
"""
