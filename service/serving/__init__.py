"""One loaded model that answers: tensors, texts, images, sequences, prompts."""
