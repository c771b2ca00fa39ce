"""The files of the playground, a page for browsers that the HTTP port serves."""
