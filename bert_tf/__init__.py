"""BERT for TensorFlow 2 and Keras 3: the library behind the programs."""
