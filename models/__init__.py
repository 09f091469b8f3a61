"""What is studied: one config per family and study, training, and the trained checkpoints."""
