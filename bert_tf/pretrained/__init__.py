"""Loads a trained model from a folder: text in, answers out."""
