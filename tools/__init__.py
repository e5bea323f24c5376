"""What run.py calls: storing the outputs of notebooks, and checking the built book."""
