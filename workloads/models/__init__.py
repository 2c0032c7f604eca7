"""Built-in models. Their shapes are available without importing torch."""
