"""The rules of publication in words, with their limits; `verify.py` applies them. It imports nothing, for `--help`."""

from collections.abc import Mapping

MIN_REPS = 3
MIN_STEPS = 20
MAX_SPREAD_PCT = 10.0
MAX_HOSTS_APART_PCT = 3.0
MAX_OVERHEAD_PCT = 5.0
MAX_EVENT_LATE_S = 0.1
ACCURACY_BAND = 0.02
LOSS_BAND = 1.10
# T(N) can be shorter than T(1) by chance, or because real computing is faster with a smaller share of the work.
MAX_SCALABILITY = {True: 1.1, False: 2.0}  # by whether computing is emulated
# The law is within a factor of 1.8 of all in results/reference. Three times its value is another effect, or an error.
MAX_LAW_FACTOR = 3.0
# A worker notices pauses to 20 ms, so those of up to about 4 % of a window of a second can remain.
MAX_PAUSED_PCT = 2.0

INTACT = "intact"
RULES: Mapping[str, str] = {
    "complete": "Every cell has a valid result; the reason column explains an invalid one.",
    "consistent": "Each row agrees with itself: computing, stall and overhead add up to the step, ratios are possible, "
    "and a repetition has a reason exactly if it is not valid.",
    "fidelity": "The network of every valid emulated repetition was measured before it ran.",
    "reps": f"Every emulated cell has {MIN_REPS} valid repetitions with different seeds; their step times differ by at "
    f"most {MAX_SPREAD_PCT:g} %.",
    "hosts": "All hosts of the run are alike: the step times of their own one-worker repetitions differ by at most "
    f"{MAX_HOSTS_APART_PCT:g} %.",
    "window": f"At least {MIN_STEPS} steps and 3 (D + p) steps were measured, in multiples of p (D: delay, p: period).",
    "code": "All cells were measured by the same code: the same version of each file.",
    "payload": "gloo did not run with scaled messages under the name of a full-size workload: gloo's segments do "
    "not scale.",
    "network": "Congestion control was pinned, and every cell has a one-worker cell to compare with.",
    "timeline": "The network changes in the same way in all cells; every change came at most "
    f"{MAX_EVENT_LATE_S:g} s after it was due or, if it changes the speed of workers, with their next step.",
    "processor": f"If compute is emulated, at most {MAX_OVERHEAD_PCT:g} % of a step is overhead of this host.",
    "accuracy": f"After as many steps of the same workload, accuracy is within {ACCURACY_BAND:g} of ssgd's, or, "
    f"without accuracy, the loss is within a factor of {LOSS_BAND:g}.",
    INTACT: "All files are as they were written. This finds damage and edits, but not forged digests.",
}
