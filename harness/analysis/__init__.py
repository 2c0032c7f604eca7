"""What follows from rows: cells, scalability, pivots, the best algorithm, comparisons. Pure."""
