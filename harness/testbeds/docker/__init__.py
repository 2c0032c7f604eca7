"""Workers in containers."""
