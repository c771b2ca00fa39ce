"""What runs inside other servers: as their own guides have it, around one function for all."""
