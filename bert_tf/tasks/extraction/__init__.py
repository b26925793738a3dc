"""Vectors and attention of a pre-trained model for lines of text (original: extract_features)."""
