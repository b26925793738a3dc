"""What the tools know of TPUs."""
