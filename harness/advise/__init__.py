"""Which algorithm, with which settings and which collective, on a network, for a model.

Layout
    question.py    Question: network, workload and limits, as a spec
    candidates.py  every setting that the workload allows, as cells; and those that it does not, with the reason
    evidence.py    what is known of the accuracy of a setting: no risk, evidence or unknown
    shortlist.py   the candidates that are worth simulating, by the step-time law
    ranking.py     measured candidates in order: the fastest to equal accuracy
    search.py      from a question to an answer: simulate, then emulate
    flips.py       which other networks and step times have another answer, by the law
    uplinks.py     the answer if the paths of a site share an uplink that the profile lacks
    answer.py      Answer: plain data, and the lines that people read; files.py: what is written beside it
    reproduce.py   a spec, a snippet and a trial; trial_result.py: what the trial measured beside the prediction
    map.py         the best setting over round-trip time and rate
"""
