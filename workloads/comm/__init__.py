"""How workers talk: the Comm, Work and Clock interfaces and their implementations."""
