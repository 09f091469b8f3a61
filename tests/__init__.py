"""The proof: the tests mirror the rooms of the house."""
