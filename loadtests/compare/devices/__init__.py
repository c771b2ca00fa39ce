"""Networks on a device: measures whose ways are workers in this process."""
