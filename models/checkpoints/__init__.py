"""Networks in folders, and those of Hugging Face."""
