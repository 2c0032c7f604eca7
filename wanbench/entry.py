"""The `wanbench` command from its first import on."""

import os
import signal
import sys


def main() -> None:
    """Run the command. Its exit code is a documented one, also if it is stopped, or fails, while it is imported."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        # A terminal that closes ends a command as SIGTERM does, whoever handles that at the moment.
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        from wanbench.harness.cli import main as command

        command(prog_name="wanbench")
    except (KeyboardInterrupt, Exception) as error:
        stopped = isinstance(error, KeyboardInterrupt)
        line = "interrupted" if stopped else f"internal error: {type(error).__name__}: {error}"
        print(f"wanbench: {line}", file=sys.stderr)
        sys.exit(130 if stopped else 70)
