"""WHO GETS IT: consumers, their place in the journal, what is in flight, and what became of an alert."""
