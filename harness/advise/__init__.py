"""Which algorithm, with which settings and which collective, on a network, for a model.

Layout
    question.py    Question: network, workload and limits, as a spec
    candidates.py  every setting that the workload allows, as cells; and those that it does not, with the reason
    evidence.py    what is known of the accuracy of a setting: no risk, evidence or unknown
    ranking.py     candidates in order: worth simulating by the step-time law, and measured
    search.py      from a question to an answer: simulate, then emulate
    sensitivity.py  which other networks and step times have another answer, by the law; unknown uplinks
    own_evidence.py   a design that measures the accuracy of the fastest settings with one's own model
    answer.py      Answer: plain data, the lines that people read, and the files beside it
    recipe.py      how to train with a setting, as far as somebody measured it
    hosts.py       what the TCP buffers of hosts do to the step times of an answer
    reproduce.py   a spec, a snippet, and a trial on real hosts
    map.py         the best setting over round-trip time and rate
    site.py        a site of several GPUs as one worker: how it is named, and how fast it is
    between_sites.py   SiteAnswer: ways to train a large language model on such sites, by the law
    published.py   what others published of these ways: published.toml, which ranks them
"""
