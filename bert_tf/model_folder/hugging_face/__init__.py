"""Models in Hugging Face's format: names of weights, configuration, folders."""
