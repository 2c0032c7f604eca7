"""The ip and tc commands that build the same network, to read or to run by hand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wanbench.harness.emulators.impairments.delay import us
from wanbench.harness.emulators.netem.plan import (
    GATEWAY,
    NO_IPV6,
    ONLY_LOCAL_IPV6,
    QUANTUM,
    ROUTER_SYSCTLS,
    Address,
    Class,
    End,
    Fifo,
    From,
    Netem,
    Root,
    Route,
    Router,
    Shape,
    Step,
    Veth,
    Worker,
    leaf_of,
    place,
    shapes,
)
from wanbench.harness.emulators.plan import MTU, EmulatedNetwork
from wanbench.workloads.process.namespace import OUTSIDE_TABLE


def commands(network: EmulatedNetwork, seed: int = 0) -> list[str]:
    """Return the commands in order, one line each. They have no seeds, which old versions of tc do not know."""
    steps = [line for step in place(network) for line in step_commands(step)]
    return steps + [shape_command(shape) for shape in shapes(network, seed)]


def step_commands(step: Step) -> Iterator[str]:
    """Yield the commands of one step of a placement."""
    match step:
        case Router(namespace):
            yield f"ip netns add {namespace}"
            settings = " ".join(f"{name}={value}" for name, value in (ROUTER_SYSCTLS | NO_IPV6).items())
            yield f"ip netns exec {namespace} sysctl -qw {settings}"
            yield f"ip -n {namespace} link set lo up"
        case Worker(namespace):
            yield f"ip netns add {namespace}"
            settings = " ".join(f"{name}={value}" for name, value in ONLY_LOCAL_IPV6.items())
            yield f"ip netns exec {namespace} sysctl -qw {settings}"
            yield f"ip -n {namespace} link set lo up"
        case Veth(_, a, b):
            yield (
                f"ip -n {a.namespace} link add {a.device} address {step.mac(a)} mtu {MTU} type veth"
                f" peer name {b.device} address {step.mac(b)} mtu {MTU} netns {b.namespace}"
            )
            for end, other in ((a, b), (b, a)):
                yield f"ip netns exec {end.namespace} ethtool -K {end.device} tso off gso off gro off"
                yield f"ip -n {end.namespace} link set {end.device} up"
                neighbour = f"{GATEWAY} lladdr {step.mac(other)} dev {end.device} nud permanent"
                yield f"ip -n {end.namespace} neigh replace {neighbour}"
        case Address(at, address):
            yield f"ip -n {at.namespace} addr add {address}/32 dev {at.device}"
        case Route(namespace, to, None):
            yield f"ip -n {namespace} route add blackhole {to}"
        case Route(table=table) if table == OUTSIDE_TABLE:
            return  # it only tells programs their address
        case Route(namespace, to, device):
            yield f"ip -n {namespace} route add {to} via {GATEWAY} dev {device} onlink"
        case Root(at, default):
            yield f"{_tc('qdisc', at)} root handle 1: stab overhead -14 htb default {default:x}"
        case From(at, address, minor):
            match_ = f"u32 match ip src {address}/32"
            yield f"{_tc('filter', at)} parent 1: protocol ip prio 1 {match_} flowid 1:{minor:x}"


def shape_command(shape: Shape) -> str:
    """Return the command that sets one class or leaf."""
    parent = f"parent 1:{shape.minor:x} handle {leaf_of(shape.minor) >> 16:x}:"
    match shape:
        case Class(at, minor, _, rate, burst):
            rates = f"rate {_bit(rate)} ceil {_bit(rate)} burst {burst} cburst {burst} quantum {QUANTUM}"
            return f"{_tc('class', at)} parent 1: classid 1:{minor:x} htb {rates}"
        case Fifo(at, limit=limit):
            return f"{_tc('qdisc', at)} {parent} bfifo limit {limit}"
        case Netem(at, limit=limit, rate=rate):
            delay = f" delay {us(shape.link.delay_ns)}"
            others = "".join(impairment.tc(shape.link) for impairment, _ in shape.link.impairments())
            return f"{_tc('qdisc', at)} {parent} netem limit {limit}{delay}{others} rate {_bit(rate)}"


def _tc(kind: str, at: End) -> str:
    return f"tc -n {shlex.quote(at.namespace)} {kind} add dev {at.device}"


def _bit(bytes_per_s: int) -> str:
    return f"{8 * bytes_per_s}bit"
