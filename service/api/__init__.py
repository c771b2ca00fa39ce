"""What every front does with a request, whatever its protocol."""
