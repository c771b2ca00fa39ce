"""Texts of files, answered into files: any number, resumable, by a server or a cluster."""
