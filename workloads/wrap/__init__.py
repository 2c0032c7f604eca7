"""`wrap`: an algorithm in a user's own training loop."""
