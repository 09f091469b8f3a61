"""Panels that several figures share."""
