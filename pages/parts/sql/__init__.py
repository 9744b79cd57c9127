"""The parts of the page of one's own SQL."""
