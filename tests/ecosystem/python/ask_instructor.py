"""`instructor`: answers in a form, as a JSON schema and as the call of a function."""

import os

import instructor
import openai
from pydantic import BaseModel, ConfigDict, Field

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
# JSON and MD_JSON ask for a form in words alone, which random weights do not follow.
MODES = (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS)


class Person(BaseModel):
    """What an answer has to be; bounded, as random weights end no text by themselves."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=150)


def check_mode(mode: instructor.Mode) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key="none"), mode=mode)
    person = client.chat.completions.create(
        model="tiny-calls",
        response_model=Person,
        messages=[{"role": "user", "content": "Ann is 30"}],
        max_retries=0,
        max_tokens=200,
    )
    assert isinstance(person, Person)


if __name__ == "__main__":
    for mode in MODES:
        check_mode(mode)
