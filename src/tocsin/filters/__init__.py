"""WHAT IS WANTED: the filter language, its relations, and the index. Pure: no clock, no disk, no network."""
