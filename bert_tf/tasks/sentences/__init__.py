"""Sentence vectors: trained on pairs of sentences, compared by their cosine."""
