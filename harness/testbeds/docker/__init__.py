"""The docker testbed: workers in containers.

testbed.py     containers that the daemon starts; adopt.py: containers started by others
containers.py  workers in containers of any origin; mounts.py: the folders that they see
daemon.py      the Docker daemon; janitor.py: removes the containers of a run, however it ends
"""
