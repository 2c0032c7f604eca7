"""Built-in models. Their shapes are known without importing torch."""
