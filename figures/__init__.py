"""The pictures: one module per figure of the paper, result in, picture out."""
