"""Tests of the figures: what is drawn is what was measured."""
