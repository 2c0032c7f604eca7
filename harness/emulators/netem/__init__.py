"""Paths made slow by the kernel: routers in network namespaces, netem and htb through pyroute2."""
