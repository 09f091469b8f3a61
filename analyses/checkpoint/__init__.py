"""One module for each question to a checkpoint."""
