"""The parts of the study `language_model`: a module for each question, which returns rows."""
