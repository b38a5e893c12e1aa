"""Builds and checks the files that are uploaded to a package index."""
