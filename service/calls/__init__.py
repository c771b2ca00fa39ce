"""One typed record for each request and each answer."""
