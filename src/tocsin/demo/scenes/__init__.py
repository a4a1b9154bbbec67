"""What is shown beside the plant's own day, one thing at a time. Each scene counts only what it has observed."""
