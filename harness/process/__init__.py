"""This process and the ones it starts: whose a leftover is, and how to run our own modules in a child."""
