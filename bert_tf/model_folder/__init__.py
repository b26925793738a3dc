"""A model's folder: which files it has, read by one class and written by one function."""
