"""Text to ids: tokenizers, casing, vocabularies, sequences."""
