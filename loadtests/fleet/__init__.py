"""Several servers behind an autoscaler, measured and simulated."""
