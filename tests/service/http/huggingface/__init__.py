"""Tests of service/http/huggingface/."""
