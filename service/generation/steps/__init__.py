"""Steps: schedulers, beams, drafts, and the step itself."""
