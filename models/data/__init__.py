"""Texts, images and their labels, as rows to train on."""
