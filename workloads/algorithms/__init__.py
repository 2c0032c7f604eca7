"""How workers agree: one file an algorithm, found by name in `registry`. No torch: vectors only."""
