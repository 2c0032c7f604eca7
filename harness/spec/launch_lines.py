"""Launch lines as users write them for several machines, and what a worker runs in their place.

Such a line says for which of the machines it is, how many there are, and where the first one is. It is the same on
every worker, so these values are replaced by those of the worker. All else stays, above all the program's arguments.
Launchers that read their place in variables, as torchrun reads PET_*, need no value on the line.

Another launcher is a line of `_LAUNCHERS`. Sources of the options: `torch/distributed/run.py` (torch 2.13),
`accelerate/commands/launch.py` (1.15), `lightning/fabric/cli.py` (2.6), `deepspeed/launcher/runner.py` (0.14.5).
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.command import files

PORT = 29500  # of the rendezvous; the default of torchrun


@dataclass(frozen=True)
class Node:
    """The place of a worker: its number as text, that of all workers, the address of the first, its own processes."""

    rank: str
    nodes: int
    address: str
    processes: int = 1

    def value(self, of: str) -> str:
        """The value of an option that is about a rank, nodes, an address, a port or an endpoint."""
        return {"port": str(PORT), "endpoint": f"{self.address}:{PORT}"}.get(of) or str(getattr(self, of))


@dataclass(frozen=True)
class _Launcher:
    """A program that starts the processes of a machine. In its options "_" stands for "-" too.

    Attributes:
        names: words after which its options begin.
        topology: options and what they are about (`Node.value`); "" for those that are left out.
        flags: options without a value: the first word after the options is the program.
        added: options that every line gets, because it would otherwise assume one machine, or start others through ssh.
    """

    names: Sequence[str]
    topology: Mapping[str, str]
    flags: Sequence[str] = ()
    added: Sequence[str] = ()


_NONE = _Launcher((), {})
_MASTER = {"node_rank": "rank", "master_addr": "address", "master_port": "port"}
_PYTHON = ("m", "module", "no_python", "h", "help")
_LAUNCHERS = (
    _Launcher(
        ("torchrun", "-m torch.distributed.run", "-m torch.distributed.launch", "tune run"),
        {**_MASTER, "nnodes": "nodes", "rdzv_endpoint": "endpoint", "standalone": "", "local_addr": ""},
        flags=(*_PYTHON, "standalone", "run_path", "virtual_local_rank", "use_env"),
    ),
    _Launcher(
        ("accelerate launch", "accelerate-launch", "-m accelerate.commands.launch"),
        {"machine_rank": "rank", "num_machines": "nodes", "main_process_ip": "address", "main_process_port": "port"},
        flags=(
            *(*_PYTHON, "quiet", "q", "debug", "cpu", "multi_gpu", "tpu", "ipex", "use_xpu", "same_network"),
            *("use_deepspeed", "use_fsdp", "use_megatron_lm", "use_parallelism_config", "enable_cpu_affinity"),
            *("dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation", "tpu_cluster"),
            *("tpu_use_sudo", "downcast_bf16", "fp8_use_autocast_during_eval"),
        ),
        added=("machine_rank", "num_machines", "main_process_ip", "main_process_port"),
    ),
    _Launcher(
        ("fabric run model", "fabric run", "lightning run model"),
        {"node_rank": "rank", "num_nodes": "nodes", "main_address": "address", "main_port": "port"},
        added=("node_rank", "num_nodes", "main_address", "main_port"),
    ),
    _Launcher(
        ("deepspeed", "-m deepspeed.launcher.runner"),
        {**_MASTER, "num_nodes": "nodes"},
        flags=(
            *(*_PYTHON, "no_ssh", "no_local_rank", "no_ssh_check", "force_multi", "save_pid", "elastic_training"),
            "bind_cores_to_rank",
        ),
        added=("no_ssh", "node_rank", "master_addr", "master_port"),
    ),
)
_NAMES = [(launcher, name.split()) for launcher in _LAUNCHERS for name in launcher.names]
# Each worker has its own; `env NAME=VALUE` would overwrite them.
_VARIABLE = re.compile(
    r"((PET_)?(NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT)|(LOCAL_|GROUP_)?RANK|WORLD_SIZE)=.*", re.DOTALL
)
_DYNAMIC = re.compile(r"--rdzv[-_]backend[= ](?!static)")
_FIXED = re.compile(
    r"""(?<![\w-])[\w-]{0,20}(?:(?:(?:master|main|rdzv|dist)[-_](?:addr(?:ess)?|endpoint|process[-_]ip|url)|init[-_]method)"""
    r"""['"\]]*(?:\s*=\s*|\s+)['"]?(?:tcp://)?(?:localhost|\d+\.\d+\.\d+\.\d+)[:\d]*"""
    r"""|(?:node|machine|distributed)[-_]rank['"\]]*(?:\s*=\s*|\s+)['"]?\d+\b|(?<=\s--)rank(?:=|\s+)0\b)""",
    re.IGNORECASE,
)


def rewritten(command: Sequence[str], node: Node) -> tuple[str, ...]:
    """Return what a worker runs: `command` with the worker's place in the options of a launcher that it starts with.

    A range of nodes (`--nnodes 1:4`) stays if it contains `node.nodes` and the rendezvous is not static.
    """
    launcher, begin = _launcher(command)
    line, rest = list[str](), [*command[begin:]]
    dynamic = _DYNAMIC.search(" ".join(rest)) is not None and "rdzv_endpoint" in launcher.topology
    added = dict.fromkeys((*launcher.added, *["rdzv_endpoint"] * dynamic))
    while rest and rest[0].startswith("-") and rest[0] != "--":
        words = [rest.pop(0)]
        option, joint, _ = words[0].partition("=")
        name = option.lstrip("-").replace("-", "_")
        options = (*launcher.topology, *launcher.flags) if option.startswith("--") else ()
        name = min((full for full in options if full.startswith(name)), key=len, default=name)  # as argparse allows
        if not (joint or name in launcher.flags or not rest or rest[0].endswith(".py")):
            words.append(rest.pop(0))
        added.pop(name, None)
        about, limits = launcher.topology.get(name), re.fullmatch(r"(?:.*=)?(\d+):(\d+)", words[-1])
        if about is None or (dynamic and limits and int(limits[1]) <= node.nodes <= int(limits[2])):
            line += words
        elif about:
            line.append(f"{option}={node.value(about)}")
    extra = [f"--{name}={node.value(of)}" if (of := launcher.topology.get(name)) else f"--{name}" for name in added]
    return (*(word for word in command[:begin] if not _VARIABLE.fullmatch(word)), *extra, *line, *rest)


def remarks(command: Sequence[str], node: Node) -> Iterator[str]:
    """Yield how the workers' line differs from the user's, and which of its values cannot be replaced.

    Raises:
        SpecError: several processes of a worker would each start all processes of that worker.
    """
    if node.processes > 1 and (names := _launcher(command)[0].names):
        raise SpecError(
            f"{names[0]}: starts all processes of a worker, but {node.processes} of it would run on each; tell only "
            f"{names[0]} how many (torchrun --nproc-per-node {node.processes}), not wanbench"
        )
    line = rewritten(command, replace(node, rank="@rank@"))  # needs no quotes
    if line != tuple(command):
        yield f"on each worker: {shlex.join(line).replace('@rank@', '{rank}')}"
    if node.nodes > 1 and (fixed := _fixed(" ".join(line), node)):
        yield (
            f"warning: {fixed[0]} is the same on every worker; in a line of `sh -c '...'`, use $NODE_RANK, $NNODES, "
            "$MASTER_ADDR and $MASTER_PORT"
        )


def cause(command: Sequence[str], node: Node, folder: Path) -> str:
    """Say what to look at if workers have exchanged nothing. `folder` has the files that the command names."""
    for name in {"mpirun", "mpiexec"} & {Path(word).name for word in command}:
        return f"{name} ran on each worker; run it once: wanbench exec --launcher ... -- {name}"
    texts = [
        (f"{path.name}: ", path.read_text(errors="replace"))
        for path in files(command, folder)
        if path.stat().st_size < 1_000_000 and os.access(path, os.R_OK)  # a script, not data
    ]
    fixed = (
        f"{name}{words} is the same on every worker; leave it to the variables that wanbench sets"
        for name, text in [("", " ".join(rewritten(command, replace(node, rank="")))), *texts]
        for words in _fixed(text, node)
    )
    return next(fixed, "the program must form its group from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")


def _launcher(command: Sequence[str]) -> tuple[_Launcher, int]:
    """Return the launcher of a command, and the number of words before its options or, without one, the program."""
    program = next((n for n, word in enumerate(command) if word == "-c" or word.endswith((".py", ".sh"))), len(command))
    words = [Path(word).name for word in command[:program]]
    begins = (
        (launcher, start + len(name))
        for start in range(program)
        for launcher, name in _NAMES
        if words[start : start + len(name)] == name
    )
    return next(begins, (_NONE, program))


def _fixed(text: str, node: Node) -> list[str]:
    """The words of a text that fix a node's rank, or an address other than that of the first worker."""
    return [words for words in _FIXED.findall(text) if node.address not in words]
