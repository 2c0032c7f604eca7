"""This process and its children: owner.py marks the owner of leftovers, child.py runs our modules in a child,
forks.py starts children by fork, apart.py runs users' code, priority.py puts a process before all others and keeps
processors awake, git.py runs git."""
