"""Pretrained language models, and prompts for them."""
