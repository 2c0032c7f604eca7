"""Compare the virtual testbed with published times: fitted values, predicted values, and the error of both.

    python benchmarks/virtual_published.py        prints three tables; exits 1 if a prediction misses its limit

* gloo under tc on AWS: 18 all-reduce times; nothing is fitted, TCP's windows are off, the limit is 20 %.
* SGP poster: all-reduce SGD on 4 to 32 nodes; the workload is fitted to the first and last, the limit between is 5 %.
* paper-dts: the rate is fitted to a scalability of 0.008; nothing is held out, so this validates nothing.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial

from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link, Queue
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.expand import expand
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp

# Nodes, one-way delay in ms (RTT = 2 x delay is an assumption), Gbit/s, MB, ms. Source: BinhangYuan/tc_cluster_setting
# (GitHub), results/allreduce.md at 21a012d: gloo on AWS with tc delay and rate on every node.
GLOO_UNDER_TC = (
    (4, 1, 5, 128, 485), (4, 5, 2, 128, 1517), (4, 10, 1, 128, 2993), (4, 1, 5, 256, 959), (4, 5, 2, 256, 2989),
    (4, 10, 1, 256, 5909), (8, 1, 5, 128, 537), (8, 5, 2, 128, 1814), (8, 10, 1, 128, 3582), (8, 1, 5, 256, 1111),
    (8, 5, 2, 256, 3562), (8, 10, 1, 256, 6999), (16, 1, 5, 128, 612), (16, 5, 2, 128, 1950), (16, 10, 1, 128, 3873),
    (16, 1, 5, 256, 1239), (16, 5, 2, 256, 3861), (16, 10, 1, 256, 7636),
)  # fmt: skip
POSTER = {4: 0.704, 8: 0.896, 16: 1.086, 32: 1.308}
FITTED = (4, 32)
GLOO_LIMIT, POSTER_LIMIT = 0.20, 0.05


def all_reduce_ms(network: EmulatedNetwork, collective: str, nbytes: int) -> float:
    """Simulate one all-reduce that all workers join at the same time."""
    simulation = Simulation()
    fabric = SimulatedFabric(simulation, VirtualNetwork(network), collective, 1)

    def join(rank: int) -> None:
        fabric.wait(fabric.collective(rank, 0, nbytes, gathers=False), rank)

    for rank in range(network.workers):
        simulation.spawn(rank, partial(join, rank))
    simulation.run()
    return simulation.now / 1e6


def under_tc(nodes: int, delay_ms: float, gbit: float) -> EmulatedNetwork:
    """Return a network with delay and rate on each node."""
    queue = Queue(gbit * 125e6, 1 << 40)
    link = Link(round(delay_ms * 1e6), 0, 0.0, UNLIMITED)
    return EmulatedNetwork(
        sites=tuple(f"node{i}" for i in range(nodes)),
        site_of=tuple(range(nodes)),
        up=(queue,) * nodes,
        down=(queue,) * nodes,
        local_delay_ns=(0,) * nodes,
        links={(a, b): link for a in range(nodes) for b in range(nodes) if a != b},
    )


def step_time_s(cell: TrainingCell, repeats: int) -> float:
    """Return the median over repetitions of the slowest worker's step time."""
    times = []
    for rep in range(repeats):
        outcomes = simulate(cell.repetition(rep).jobs, cell.emulated_network, Tcp()).outcomes.values()
        times.append(max(o.window_end_ns - o.window_begin_ns for o in outcomes) / 1e9 / cell.window)
    return statistics.median(times)


def gloo() -> bool:
    """Return whether all 18 times are within the limit."""
    print("gloo under tc (nothing fitted): nodes, delay ms, Gbit/s, MB, published ms, predicted ms, error")
    worst = 0.0
    for nodes, delay_ms, gbit, mb, published in GLOO_UNDER_TC:
        predicted = all_reduce_ms(under_tc(nodes, delay_ms, gbit), "gloo", mb << 20)
        error = predicted / published - 1
        worst = max(worst, abs(error))
        print(f"{nodes:>4}{delay_ms:>4}{gbit:>4}{mb:>5}{published:>7}{predicted:>9.0f}{error:>+8.1%}")
    print(f"worst {worst:.1%}, limit {GLOO_LIMIT:.0%}\n")
    return worst <= GLOO_LIMIT


def poster() -> bool:
    """Return whether the two held-out times are within the limit."""
    print("SGP poster, all-reduce SGD: nodes, published s, simulated s, error")
    ok = True
    spec = Spec.load("sgp-poster")
    for cell in expand(spec, "sgp-poster", FixedHost()):
        assert isinstance(cell, TrainingCell)
        if cell.is_baseline:
            continue
        published, simulated = POSTER[cell.workers], step_time_s(cell, spec.run.repeats)
        error = simulated / published - 1
        ok &= cell.workers in FITTED or abs(error) <= POSTER_LIMIT
        role = "fitted" if cell.workers in FITTED else "predicted"
        print(f"{cell.workers:>4}{published:>8.3f}{simulated:>8.3f}{error:>+8.1%}  {role}", flush=True)
    print()
    return ok


def paper_dts() -> None:
    """Print the result of the fitted profile."""
    text = """
schema = 1
name = "paper-dts"
workload = { name = "resnet50-v100", step_cv = 0.0 }
network = { profile = "paper-dts", tcp = { slow_start_after_idle = false } }
comm = { collective = "ring", buckets = "50MiB" }
algorithms = { ssgd = {} }
sweep = { workers = [16] }
run = { testbed = "virtual" }
"""
    cell = expand(Spec.from_toml(text, "paper-dts"), "paper-dts", FixedHost())[-1]
    assert isinstance(cell, TrainingCell)
    print(f"paper-dts, ssgd on 16 workers, ring: scalability {0.3 / step_time_s(cell, 1):.4f}; it was fitted to 0.008")


if __name__ == "__main__":
    passed = [gloo(), poster()]
    paper_dts()
    sys.exit(0 if all(passed) else 1)
