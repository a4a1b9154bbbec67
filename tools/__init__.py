"""What the repository needs beside the product: today, the documentation site."""
