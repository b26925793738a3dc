"""Exports a trained model for servers, other languages and phones."""
