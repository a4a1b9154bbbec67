"""WHAT HAPPENED: the journal, a durable total order of events, and how its past is searched."""
