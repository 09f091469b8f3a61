"""The command line of the models, and the table of the shipped checkpoints."""
