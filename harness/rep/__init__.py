"""One repetition: a training job or a program, on any testbed, judged for fidelity."""
