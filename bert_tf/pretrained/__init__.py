"""A trained model in a folder, loaded to be used: text in, answers out."""
