"""What a worker is: a process with a network of its own that takes commands."""
