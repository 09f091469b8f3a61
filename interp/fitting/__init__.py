"""Laws of attention and their fits, to captured scores, captured attention, and the sums of a scan."""
