"""An algorithm in a training loop of the user's own."""
