"""`python -m wanbench.harness.cli` is the `wanbench` command."""

from wanbench.entry import main

main()
