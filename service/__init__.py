"""The server: reads a model repository and answers over gRPC and HTTP. Runs without torch."""

__version__: str


def __getattr__(name: str) -> str:
    """The version, looked up when it is read: that takes longer than a health check may."""
    if name != "__version__":
        raise AttributeError(f"module 'service' has no attribute '{name}'")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("attendant")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0+checkout"
