"""This process and its children: owner.py marks the owner of leftovers, child.py runs our modules in a child,
forks.py starts children by fork, apart.py runs users' code, awake.py keeps processors awake, ahead.py puts a process
before all others, git.py runs git."""
