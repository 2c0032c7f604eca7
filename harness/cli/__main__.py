"""`python -m wanbench.harness.cli` is the `wanbench` command."""

from wanbench.harness.cli import main

main(prog_name="wanbench")
