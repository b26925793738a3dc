"""Draws the pictures of the tools."""
