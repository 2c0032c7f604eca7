"""What runs on a worker: trainer, algorithms, workloads and their communication. From the top floor down:

process/       a worker: its network namespace, its control channel, the programs that it runs
loop/          a job: job.py says it, session.py is around it, train.py the loop; stepping.py: steps of a user's program
wrap/          the same in a loop of the user's: wrap()
algorithms/    how workers agree: one file an algorithm, behind one small base class
registry.py    workloads by name, by numbers or by model
compression/   what a vector loses on its way
compute/       what a step computes and costs, real or emulated; the optimizers
models/        the models, and the built-in workloads
data/          what it is trained on, and which part of it a worker has
comm/          Comm, Work and Clock; on sockets (direct, gloo) and in memory (threads, a simulated clock)

workload_keys.py reads a spec's [workload]; parameters.py, state.py and seeding.py lie below everything.

Standard library, torch and numpy only (scikit-learn for its bundled digits), which keeps a worker image small.
"""
