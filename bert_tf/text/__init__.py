"""Text to ids: fast tokenizer, casing, sequences, documents, TensorFlow Datasets."""
