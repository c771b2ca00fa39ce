"""The Vision Transformer: images cut into patches, which an encoder reads like words."""
