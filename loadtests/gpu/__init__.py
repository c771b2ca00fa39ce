"""The check of Attendant on a GPU: one command within a budget, with a report."""
