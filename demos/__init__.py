"""Every system, from nothing to an answered request. Imports whatever it shows."""
