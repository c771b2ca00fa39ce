"""Writers of files under deploy/ that follow from other files."""
