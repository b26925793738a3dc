"""TensorFlow's start: whether it can be imported, its import without noise, and when it is used."""
