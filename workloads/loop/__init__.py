"""The training loop and what it steps."""
