"""What orchestrates: specs become cells, cells run on a testbed, rows become tables, figures and verdicts.

Layout
    spec.py plan.py    a typed experiment and its cells (pure)
    predict.py         the step-time law: what a cell should take (pure, no third-party import)
    run.py store.py    executes cells; results on disk; resume
    testbeds/          netns, docker and virtual, behind one small interface
    emulators/         what makes a path slow, and the probe that measures it
    analysis.py        rows -> cells, scalability, pivots
    tables.py figures/ rows as text and as figures
    cli/               one file a command, imported lazily
    experiments/       built-in specs
"""
