"""An algorithm in a user's own training loop: `wrap`, and `attach` for DistributedDataParallel."""
