"""This process and the ones it starts: owner.py: whose a leftover is; child.py: our own modules in a child."""
