"""Models in the format of Hugging Face: names of weights, configuration, folders."""
