"""Results on disk: the catalogue of columns, rows, the run folder, evidence, the rules of publication."""
