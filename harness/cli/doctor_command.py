"""wanbench doctor"""

import dataclasses
import json

import click

from wanbench.harness.cli.options import json_option
from wanbench.harness.cli.terminal import show_entry
from wanbench.harness.errors import HostError


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Check kernel, permissions, Docker and processors: what works, what is missing, and how to fix it.

    The exit code is 0 if experiments can run here, 3 if not.

    \b
    Example:  wanbench doctor --json
    """
    from wanbench.harness.run.doctor import can_run, examine

    findings = examine()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            show_entry(f"{finding.state:7}  {finding.topic:10}  ", finding.text)
            remarks = [("or" if at else "fix", fix) for at, fix in enumerate((finding.fix or "").splitlines())]
            remarks += [("until then", finding.meanwhile)] if finding.meanwhile else []
            for label, text in remarks:
                show_entry(f"{'':21}{label}: ", text)
    if not can_run(findings):
        raise HostError("nothing can be emulated here; see the fixes above, or simulate: --testbed virtual")
