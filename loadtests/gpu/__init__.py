"""What there is to know about Attendant on a GPU, measured by one command and written down."""
