"""Reads examples and documents from text files, tables, TFDS and Wikipedia."""
