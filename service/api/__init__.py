"""The steps of every front with a request: operations, admission, access, tensors, records."""
