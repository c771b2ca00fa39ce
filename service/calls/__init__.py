"""One typed record for each request and each answer: what a front gives, and what it gets."""
