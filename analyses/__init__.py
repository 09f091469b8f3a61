"""The analyses, one module each: a checkpoint goes in, a table of results comes out."""
