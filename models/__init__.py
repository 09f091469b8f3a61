"""The models under study: configs of families and studies, training, and the trained checkpoints."""
