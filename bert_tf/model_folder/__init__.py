"""Reads and writes the files of a model's folder."""
