"""Files that the tools share."""
