"""Ids to logits: configuration, layers, heads, freezing."""
