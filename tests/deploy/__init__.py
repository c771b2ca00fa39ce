"""The chart, the plain manifests and KServe's objects: rendered, validated, and checked by rule."""
