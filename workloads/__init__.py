"""What runs on a worker: trainer, algorithms, workloads and their communication.

Layout
    worker.py      process entry: takes jobs from the control socket, runs them, streams rows back
    train.py       the training loop
    wrapping.py    the same in a loop of the user's: wrap(); flat.py, followed.py: its parameters and its optimizer
    optim.py       SGD on one flat vector
    compute.py     real or emulated compute time
    algorithms/    one file an algorithm, behind one small base class
    comm/          Comm, Work and Clock; gloo and direct implementations
    models/, datasets.py

Standard library and torch only (scikit-learn for its bundled digits), so that a worker image stays small.
"""
