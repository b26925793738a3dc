"""Files that the tools read and write."""
