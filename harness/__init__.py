"""What orchestrates: a spec becomes a plan, its cells run on a testbed, rows become tables, figures and verdicts.

Rooms, from the top floor down; each uses those below it
    cli/           one file a command, imported when it is called
    gate/          `wanbench check`: did scalability regress?
    api.py         the same words in Python: run, Run
    run/           one invocation: which repetitions run when, what is said of them, what this host can do
    rep/           one repetition: a training or a program, measured and judged
    testbeds/      what workers run in: network namespaces, containers, a simulated clock; one interface
    show/          everything that people look at: tables, figures, the report, figure sets of papers
    analysis/      what follows from rows: scalability, pivots, the best algorithm, comparisons (pure)
    results/       the catalogue of columns, rows, the run folder, evidence, rules of publication
    plan/          from a spec to its cells, each with its identity; the step-time law; what it all costs
    timeline/      networks that change, workers that are slow or killed
    emulators/     what makes a path slow, and the probe that measures it
    spec/          from TOML to typed tables, each key with its description; the built-in experiments
    process/       our own modules in a child process; whose a running process is
    errors.py      every error that the user may see, and its exit code

calibrate.py and measure.py belong to the commands of that name: a script as a workload, ping and iperf3 as a profile.
"""
