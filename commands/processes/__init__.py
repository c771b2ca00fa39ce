"""Several processes as one server: the process that starts and ends them, and each of them."""
