"""A trained model in the formats of servers, other languages and phones."""
