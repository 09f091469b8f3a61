"""The results page and the explorer."""
