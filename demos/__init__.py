"""Every system, from nothing to an answered request. Imports every package that it shows."""
