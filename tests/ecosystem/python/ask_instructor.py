"""`instructor`: it asks for forms of answers that a grammar would have to hold: refused by name."""

import os

import instructor
import openai
from instructor.core.exceptions import InstructorError
from pydantic import BaseModel

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
# MD_JSON asks for a form in words alone, which random weights do not follow.
REFUSED = {
    instructor.Mode.JSON: "response_format is not supported",
    instructor.Mode.TOOLS: "tool_choice is not supported",
}


class Person(BaseModel):
    """What an answer would have to be."""

    name: str
    age: int


def check_mode_is_refused(mode: instructor.Mode) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key="none"), mode=mode)
    try:
        client.chat.completions.create(
            model="tiny-chat",
            response_model=Person,
            messages=[{"role": "user", "content": "Ann is 30"}],
            max_retries=1,
        )
    except (InstructorError, openai.BadRequestError) as error:
        assert REFUSED[mode] in str(error), error
    else:
        raise AssertionError("a form that no grammar holds was promised")


if __name__ == "__main__":
    for mode in REFUSED:
        check_mode_is_refused(mode)
