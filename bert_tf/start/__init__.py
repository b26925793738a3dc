"""Imports TensorFlow quietly, and only when it is used."""
