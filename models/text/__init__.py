"""Small language models trained here: characters of the shipped text, with snapshots along the way."""
