"""TensorFlow's start: its import without noise, and when it is used."""
