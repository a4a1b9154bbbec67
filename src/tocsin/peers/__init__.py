"""WHO IS THERE: advertisements, servers and requests, groups and their views. State and rules; no I/O, no clock."""
