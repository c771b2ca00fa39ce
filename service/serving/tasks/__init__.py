"""What each task asks of a model and answers: one record for each."""
