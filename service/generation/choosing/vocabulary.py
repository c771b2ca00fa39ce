"""Checks of a request's parameters against the vocabulary of a model. Pure."""

from collections.abc import Collection

from service.calls.sampling import Sampling
from service.errors import invalid_field

ID_LISTS = ("allowed_token_ids", "banned_token_ids", "stop_token_ids", "logit_bias")


def check_vocabulary(
    params: Sampling,
    size: int,
    eos_token_ids: tuple[int, ...] = (),
    banned_token_ids: tuple[int, ...] = (),
) -> None:
    """Raise `InvalidArgument` for parameters that leave no token of the vocabulary to choose.

    Also for ids that it does not have. `banned_token_ids` are those that the model bans itself.
    """
    for name in ID_LISTS:
        ids: Collection[int] = getattr(params, name)
        if ids and max(ids) >= size:
            raise invalid_field(name, f"has the token id {max(ids)}, expected 0 to {size - 1}")
    banned = {*params.banned_token_ids, *banned_token_ids}
    if banned and banned.issuperset(params.allowed_token_ids or range(size)):
        if not params.banned_token_ids:
            raise invalid_field("allowed_token_ids", "has only tokens that the model bans")
        raise invalid_field(
            "banned_token_ids", "has every token that may be chosen, expected one left"
        )
    ends = {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}
    if params.min_tokens and (banned | ends).issuperset(params.allowed_token_ids or range(size)):
        raise invalid_field(
            "min_tokens",
            f"is {params.min_tokens}, expected 0 where every token that may be chosen "
            "ends the text",
        )
