"""What engines run on: sessions, tokenizers, images, processors, and how fast they are."""
