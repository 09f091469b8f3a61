"""One module for each question that needs no checkpoint, or many."""
