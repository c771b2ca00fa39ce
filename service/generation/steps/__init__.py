"""What a step computes: schedulers, beams, drafts, and the step itself."""
