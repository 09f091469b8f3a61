"""The proof: the tests mirror the packages."""
