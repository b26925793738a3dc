"""Settings, and the flags made from them."""
