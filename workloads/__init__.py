"""What runs on a worker: trainer, algorithms, workloads and their communication. From the top floor down:

process/       a worker: its network namespace, its control channel, the programs that it runs
loop/          a training job: job.py describes it, session.py sets it up, train.py is the loop; stepping.py: steps of a
               user's program
wrap/          an algorithm in a user's own training loop: wrap()
group/         the process group "wan" of torch, over direct, ring and hierarchical
algorithms/    how workers agree: one file per algorithm, behind one small base class
registry.py    workloads by name, by numbers or by model
compression/   compressors of messages
compute/       what a step computes and costs, real or emulated; the optimizers
models/        the models, and the built-in workloads
data/          the data sets, and the part of them that each worker gets
comm/          Comm, Work and Clock; on sockets (direct, gloo) and in memory (threads, a simulated clock)

workload_keys.py reads a spec's [workload]; parameters.py, state.py, seeding.py and imported.py (which modules of a user
a process has imported) are the lowest floor. wire.py declares the values of a worker's messages.

Standard library, torch and numpy only (scikit-learn for its bundled digits), which keeps a worker image small.
"""
