"""Load from scenarios: clients, schedules, counts and reports."""
