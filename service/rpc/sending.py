"""Writes the messages of a stream, each within a time."""

import asyncio

import grpc

from service.errors import DeadlineExceeded
from service.rpc.status import Context


async def send(context: Context, timeout_s: float, message: object) -> None:
    """Write one message of a stream; raises `DeadlineExceeded` where it is not read in time.

    What the request holds is then freed. gRPC keeps the message and the status until the
    client reads on or its connection ends.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await context.write(message)
    except grpc.aio.BaseError as error:  # the connection ended before gRPC could cancel this
        raise asyncio.CancelledError from error
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"an answer was not read for {timeout_s:g} s, which is the limit"
        ) from error
