"""The base of the engines: sessions, images, processors, and prices of runs."""
