"""Settings and the flags that are made of them."""
