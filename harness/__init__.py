"""Orchestration: a spec becomes a plan, cells run on a testbed, and rows become tables, figures and verdicts.

Rooms, from the top floor down; each uses only the rooms below it
    cli/           one file per command, imported when it is called
    advise/        which algorithm, with which settings and which collective, on a network, for a model
    gate/          `wanbench check`: did scalability regress?
    learning/      loss and accuracy by step, recorded once for many settings
    api.py         the same in Python: run, Run
    run/           one invocation: schedule, progress, checks of this host
    rep/           one repetition: a training or a program, measured and judged
    testbeds/      what workers run in: network namespaces, containers, a simulated clock; one interface
    show/          output for people: tables, figures, the report, figure sets of papers
    analysis/      results computed from rows: scalability, pivots, the best algorithm, comparisons (pure)
    results/       the catalogue of columns, rows, the run folder, evidence, rules of publication
    plan/          from a spec to its cells, each with its identity; the step-time law; the load of a cell
    timeline/      changes of the network over time; slow and killed workers
    emulators/     netem and relay, which make paths slow, and the probe that measures them
    spec/          from TOML to typed tables, each key with its description; the built-in experiments
    process/       our modules in a child process; the owner of a running process
    errors.py      every error that a user can see, and its exit code
    text.py        numbers, sizes, rates and times as people read them
    grouping.py    the values of each key

describe.py and measure/ make a workload from a script (`exec --describe`), and a profile from ping and iperf3 output.
"""
