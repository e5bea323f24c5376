"""What only the chapters use: the running example, tables, claims, experiments."""
