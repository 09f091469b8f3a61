"""The parts of the study `language_model`: functions from options and a cache to rows."""
