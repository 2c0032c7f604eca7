"""One invocation: which repetitions run when, what the user hears, what this host can do."""
