"""Text to ids: the fast tokenizer, sequences, datasets."""
