"""Every family and head beside decoders, from a folder of Hugging Face's to served answers."""
