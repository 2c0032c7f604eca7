"""Data sets, and how they are divided over workers."""
