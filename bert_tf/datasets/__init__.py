"""Files of text, tables, TFDS, Wikipedia: examples and documents."""
