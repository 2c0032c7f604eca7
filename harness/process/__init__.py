"""This process and its children: owner.py marks the owner of leftovers, child.py runs our modules in a child,
awake.py keeps processors awake."""
