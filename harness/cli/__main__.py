"""`python -m harness.cli` is the `wanbench` command."""

from harness.cli import main

main(prog_name="wanbench")
