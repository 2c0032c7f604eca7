"""The netem emulator: routers in network namespaces, with netem and htb set through pyroute2."""
