"""The plant: what happens there, and who works there."""
