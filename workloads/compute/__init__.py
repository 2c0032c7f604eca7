"""What a step costs, real or emulated."""
