"""Figures beyond the paper, one module each."""
