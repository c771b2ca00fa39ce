"""`instructor`: it asks for chats alone, which a model without a chat template refuses by name."""

import os

import instructor
import openai
from instructor.core.exceptions import InstructorError
from pydantic import BaseModel

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
MODES = (instructor.Mode.JSON, instructor.Mode.MD_JSON, instructor.Mode.TOOLS)


class Person(BaseModel):
    """What an answer would have to be."""

    name: str
    age: int


def check_mode_is_refused(mode: instructor.Mode) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key="none"), mode=mode)
    try:
        client.chat.completions.create(
            model="tiny-gpt",
            response_model=Person,
            messages=[{"role": "user", "content": "Ann is 30"}],
            max_retries=1,
        )
    except (InstructorError, openai.BadRequestError) as error:
        assert "no chat template" in str(error), error
    else:
        raise AssertionError("a model without a chat template answered a chat")


if __name__ == "__main__":
    for mode in MODES:
        check_mode_is_refused(mode)
