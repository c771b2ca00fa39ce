"""Load generators and measurements. Commands, not tests: nothing here is timed in CI."""
