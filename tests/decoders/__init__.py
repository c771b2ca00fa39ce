"""Every family of decoders, from a folder of Hugging Face's to text that the server writes."""
