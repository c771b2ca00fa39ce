"""`/v1/files` and `/v1/batches`: the whole circle, bounds, cancellation, drains and restarts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from urllib3 import encode_multipart_formdata

from service.http.batches.store import Store
from service.settings import Settings
from tests.fakes.chats import write_chat_model
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, eventually, metrics_page, serving, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
USER = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"model": "mini", "input": ["a", "b"]},
    "/v1/completions": {"model": "tale", "prompt": "a", "max_tokens": 3, "temperature": 0},
    "/v1/chat/completions": {"model": "talks", "messages": [USER], "max_tokens": 3},
    "/v1/responses": {"model": "talks", "input": "hi", "max_output_tokens": 3},
}
ENDED = ("completed", "failed", "expired", "cancelled")


@asynccontextmanager
async def batching(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    if not (repository / "spam").exists():  # nor is it a second server of the folder
        write_every_model(repository)
        write_chat_model(repository)
    folder = {"batch_folder": str(repository.parent / "batches"), "http_port": 0}
    async with serving(repository, every_session(), **folder | settings) as served:
        yield served


SERVE = batching


async def get(served: Served, path: str, method: str = "GET") -> Any:
    answer = await within_patience(ask(served, method, path))
    assert answer.status == 200, answer.body
    return answer.json


async def uploaded(served: Served, content: bytes, **more: Any) -> Answer:
    fields = {"purpose": "batch", "file": ("in.jsonl", content, "application/jsonl"), **more}
    body, kind = encode_multipart_formdata(fields)
    return await within_patience(ask(served, "POST", "/v1/files", body, [("content-type", kind)]))


def lines(url: str, *bodies: Any, names: str = "line-{}") -> bytes:
    return b"".join(
        json.dumps(
            {"custom_id": names.format(place), "method": "POST", "url": url, "body": body}
        ).encode()
        + b"\n"
        for place, body in enumerate(bodies)
    )


async def begun(served: Served, url: str, content: bytes, **fields: Any) -> Any:
    """A batch of a file that holds these lines."""
    file = (await uploaded(served, content)).json
    wanted = {"input_file_id": file["id"], "endpoint": url, "completion_window": "24h", **fields}
    answer = await within_patience(ask(served, "POST", "/v1/batches", wanted))
    assert answer.status == 200, answer.body
    return answer.json


async def ended(served: Served, batch_id: str) -> Any:
    store = runner_of(served).store
    await eventually(lambda: store.batches[batch_id].has_ended)
    return await get(served, f"/v1/batches/{batch_id}")


def runner_of(served: Served) -> Any:
    http: Any = served.app._http
    return http.batches


async def results(served: Served, file_id: str | None) -> list[Any]:
    if file_id is None:
        return []
    answer = await within_patience(ask(served, "GET", f"/v1/files/{file_id}/content"))
    assert answer.status == 200
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.mark.parametrize("url", BODIES)
async def test_each_line_is_answered_as_a_request_to_its_path(served: Served, url: str) -> None:
    """Its good lines as the route answers them, and its bad ones with the route's refusals."""
    bad = {**BODIES[url], "model": "nowhere"}
    streamed = {**BODIES[url], "stream": True}
    batch = await begun(
        served, url, lines(url, BODIES[url], bad, streamed), metadata={"purpose": "test"}
    )
    assert (batch["object"], batch["status"]) == ("batch", "validating")
    assert batch["expires_at"] - batch["created_at"] == 24 * 3_600
    batch = await ended(served, batch["id"])
    assert batch["status"] == "completed", batch
    assert batch["metadata"] == {"purpose": "test"}
    assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    assert batch["in_progress_at"] <= batch["finalizing_at"] <= batch["completed_at"]
    (good,) = await results(served, batch["output_file_id"])
    direct = await ask(served, "POST", url, BODIES[url])
    assert (good["custom_id"], good["error"]) == ("line-0", None)
    assert good["response"]["status_code"] == direct.status == 200
    assert good["response"]["request_id"]
    assert {*good["response"]["body"]} == {*direct.json}
    errors = {each["custom_id"]: each for each in await results(served, batch["error_file_id"])}
    refused = (await ask(served, "POST", url, bad)).json
    assert errors["line-1"]["response"]["status_code"] == 404
    assert errors["line-1"]["response"]["body"] == refused
    assert errors["line-2"]["response"]["body"]["error"]["param"] == "stream"


async def test_lines_run_in_the_background(served: Served) -> None:
    """Embeddings with the engine's own priority, generation behind all other sequences."""
    seen: list[Any] = []
    operations = served.app._http.front.operations  # type: ignore[union-attr]
    batch = await begun(served, "/v1/embeddings", lines("/v1/embeddings", BODIES["/v1/embeddings"]))
    await ended(served, batch["id"])
    for path, operation in operations.items():
        if path.endswith(("/Embed", "/GenerateUnary")):
            kept = operation.call

            async def watched(call: Any, *rest: Any, kept: Any = kept) -> Any:
                seen.append(call)
                return await kept(call, *rest)

            object.__setattr__(operation, "call", watched)
    for url in BODIES:
        batch = await begun(served, url, lines(url, BODIES[url]))
        await ended(served, batch["id"])
        headers = [("priority", "u=7, i")]
        content = json.dumps(BODIES[url]).encode()
        await ask(served, "POST", url, content, headers)
    told = [getattr(each, "background", None) or each.priority for each in seen]
    assert told == [True, True, *(6 * [2**32 - 1])]
    seen.clear()
    await ask(served, "POST", "/v1/embeddings", BODIES["/v1/embeddings"])
    assert seen[0].background is False


async def test_a_file_with_faults_fails_by_the_numbers_of_its_lines(served: Served) -> None:
    content = lines("/v1/embeddings", {}, {}) + b"{\n" + lines("/v1/completions", {}, names="c{}")
    batch = await ended(served, (await begun(served, "/v1/embeddings", content))["id"])
    assert batch["status"] == "failed"
    assert batch["errors"]["object"] == "list"
    told = [(each["line"], each["code"]) for each in batch["errors"]["data"]]
    assert told == [(3, "invalid_json_line"), (4, "mismatched_url")]
    assert batch["output_file_id"] is batch["error_file_id"] is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"completion_window": "1d"}, "completion_window"),
        ({"completion_window": "999h"}, "completion_window"),
        ({"input_file_id": "file-nowhere"}, "input_file_id"),
        ({"metadata": {str(key): "" for key in range(17)}}, "metadata"),
        ({"metadata": {"key": "x" * 513}}, "metadata"),
        ({"metadata": {"key": 1}}, "metadata"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused_at_its_field(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    file = (await uploaded(served, lines("/v1/embeddings", {}))).json
    wanted = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
    answer = await ask(served, "POST", "/v1/batches", {**wanted, **fields})
    assert answer.status == 400
    assert answer.json["error"]["param"].startswith(param)


async def test_files_are_told_listed_and_deleted(served: Served) -> None:
    content = lines("/v1/embeddings", {})
    more = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    file = (await uploaded(served, content, **more)).json
    assert file["expires_at"] - file["created_at"] == 3_600
    assert (file["object"], file["bytes"], file["filename"], file["purpose"], file["status"]) == (
        "file",
        len(content),
        "in.jsonl",
        "batch",
        "processed",
    )
    assert await get(served, f"/v1/files/{file['id']}") == file
    others = [(await uploaded(served, content)).json["id"] for _ in range(2)]
    listed = await get(served, "/v1/files?purpose=batch")
    assert {file["id"], *others} <= {each["id"] for each in listed["data"]}
    page = await get(served, "/openai/v1/files?limit=1&order=asc")
    assert page["has_more"]
    following = await get(served, f"/v1/files?limit=1&order=asc&after={page['last_id']}")
    assert following["first_id"] != page["first_id"]
    for query in ("limit=0", "limit=x", "order=up", "after=nowhere"):
        assert (await ask(served, "GET", f"/v1/files?{query}")).status == 400
    deleted = await get(served, f"/v1/files/{file['id']}", "DELETE")
    assert deleted == {"id": file["id"], "object": "file", "deleted": True}
    for path in ("files/nowhere", "files/..%2Flock", f"files/{file['id']}/content", "batches/x"):
        answer = await ask(served, "GET", f"/v1/{path}")
        assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "more",
    [
        {"purpose": "fine-tune"},
        {"expires_after[seconds]": "3600"},
        {"expires_after[anchor]": "created_at", "expires_after[seconds]": "1"},
        {"expires_after[anchor]": "created_at"},
    ],
)
async def test_an_upload_with_a_wrong_field_is_refused(
    served: Served, more: dict[str, Any]
) -> None:
    assert (await uploaded(served, b"{}", **more)).status == 400


async def test_a_batch_is_cancelled_and_what_is_done_stays(served: Served) -> None:
    url = "/v1/embeddings"
    held = await served.hold("mini")
    batch = await begun(served, url, lines(url, *(3 * [BODIES[url]])))
    await eventually(lambda: served.num_waiting("mini") > 0)
    in_use = await ask(served, "DELETE", f"/v1/files/{batch['input_file_id']}")
    assert (in_use.status, in_use.json["error"]["code"]) == (409, "file_in_use")
    told = await get(served, f"/v1/batches/{batch['id']}/cancel", "POST")
    assert told["status"] == "cancelling"
    batch = await ended(served, batch["id"])
    assert (batch["status"], batch["request_counts"]["completed"]) == ("cancelled", 0)
    again = await ask(served, "POST", f"/v1/batches/{batch['id']}/cancel")
    assert again.status == 409
    served.release("mini")
    await held


async def test_a_cancellation_whose_client_leaves_ends_the_batch(served: Served) -> None:
    url, runner = "/v1/embeddings", runner_of(served)
    held = await served.hold("mini")
    batch = await begun(served, url, lines(url, BODIES[url]))
    await eventually(lambda: served.num_waiting("mini") > 0)
    leaving = asyncio.create_task(runner.cancel(runner.store.batches[batch["id"]]))
    await asyncio.sleep(0)  # it has begun
    leaving.cancel()
    assert (await ended(served, batch["id"]))["status"] == "cancelled"
    served.release("mini")
    await held


async def test_a_file_whose_client_leaves_is_kept_and_counted(served: Served) -> None:
    store = runner_of(served).store
    num_files, num_bytes = len(store.files), store.num_bytes
    leaving = asyncio.create_task(store.add(b"abc", "a.jsonl", "batch"))
    await asyncio.sleep(0)
    leaving.cancel()
    await eventually(lambda: len(store.files) == num_files + 1)
    assert store.num_bytes == num_bytes + 3


async def test_two_requests_forget_what_is_too_old_at_once(served: Served) -> None:
    store = runner_of(served).store
    num_files, num_bytes = len(store.files), store.num_bytes
    for _ in range(3):
        file = await store.add(b"abc", "a.jsonl", "batch")
        store.files[file.id] = msgspec.structs.replace(file, expires_at=0)
    await asyncio.gather(store.forget_expired(), store.forget_expired())
    assert (len(store.files), store.num_bytes) == (num_files, num_bytes)


async def test_a_line_that_is_refused_for_now_is_asked_again(tmp_path: Path) -> None:
    """Of a full queue; the batch waits, and no line fails."""
    url = "/v1/embeddings"
    async with batching(tmp_path / "models", max_queue_requests=1) as served:
        held = await served.hold("mini")
        batch = await begun(served, url, lines(url, *(3 * [BODIES[url]])))
        await eventually(lambda: served.num_waiting("mini") > 0)
        await asyncio.sleep(0.05)
        served.release("mini")
        await held
        batch = await ended(served, batch["id"])
        assert batch["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
        page = await metrics_page(served.app)
        assert 'attendant_batch_lines_total{result="completed"} 3.0' in page
        assert "attendant_batches_unfinished 0.0" in page


async def test_a_batch_goes_on_after_a_restart_and_repeats_no_line(tmp_path: Path) -> None:
    url = "/v1/embeddings"
    bodies = [{"model": "mini", "input": f"text {place}"} for place in range(4)]
    settings = {"batch_lines_in_flight": 1, "drain_timeout_s": 0.0}
    async with batching(tmp_path / "models", **settings) as served:
        served.sessions["mini"].hold(after=1)
        batch = await begun(served, url, lines(url, *bodies))
        store = runner_of(served).store
        await eventually(lambda: store.batches[batch["id"]].request_counts.completed == 1)
        await served.app.stop()
    partial = tmp_path / "batches" / "batches" / f"{batch['id']}.output"
    done = json.loads(partial.read_bytes())
    partial.write_bytes(partial.read_bytes() + b'{"custom_id": "line-3", "resp')  # cut off
    async with batching(tmp_path / "models") as served:
        batch = await ended(served, batch["id"])
        assert batch["status"] == "completed"
        assert batch["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
        found = await results(served, batch["output_file_id"])
        assert sorted(each["custom_id"] for each in found) == [f"line-{n}" for n in range(4)]
        assert found[0] == done
        assert runner_of(served).num_lines["completed"] == 3


async def test_lines_that_are_late_are_told_as_expired(tmp_path: Path) -> None:
    url = "/v1/embeddings"
    async with batching(tmp_path / "models", drain_timeout_s=0.0) as served:
        served.sessions["mini"].hold()
        batch = await begun(served, url, lines(url, *(2 * [BODIES[url]])))
        await eventually(lambda: served.num_waiting("mini") > 0)
        await served.app.stop()
    record = tmp_path / "batches" / "batches" / f"{batch['id']}.json"
    kept = json.loads(record.read_bytes())
    record.write_text(json.dumps({**kept, "expires_at": kept["created_at"] - 1}))
    async with batching(tmp_path / "models") as served:
        batch = await ended(served, batch["id"])
        assert (batch["status"], batch["request_counts"]["failed"]) == ("expired", 2)
        errors = await results(served, batch["error_file_id"])
        assert [each["error"]["code"] for each in errors] == 2 * ["batch_expired"]
        assert [each["response"] for each in errors] == [None, None]


async def test_what_is_kept_has_bounds(tmp_path: Path) -> None:
    url = "/v1/embeddings"
    content = lines(url, BODIES[url])
    bounds = {"max_batch_files": 3, "max_batch_bytes": 1_024, "max_waiting_batches": 1}
    async with batching(tmp_path / "models", **bounds) as served:
        too_long = await uploaded(served, b"x" * 1_025)
        assert (too_long.status, too_long.json["error"]["code"]) == (413, "storage_full")
        held = await served.hold("mini")
        batch = await begun(served, url, content)
        wanted = {"endpoint": url, "completion_window": "24h"}
        wanted["input_file_id"] = batch["input_file_id"]
        second = await ask(served, "POST", "/v1/batches", wanted)
        assert (second.status, second.json["error"]["code"]) == (429, "too_many_batches")
        served.release("mini")
        await held
        await ended(served, batch["id"])
        await uploaded(served, b"x")
        full = await uploaded(served, b"x")
        assert (full.status, full.json["error"]["code"]) == (413, "storage_full")
    async with batching(tmp_path / "models", max_batch_bytes=1_024) as served:
        store = runner_of(served).store
        assert store.num_bytes == sum(file.bytes for file in store.files.values())
        full = await begun(served, url, lines(url, *(4 * [BODIES[url]])))
        full = await ended(served, full["id"])
        assert (full["status"], full["errors"]["data"][0]["code"]) == ("failed", "storage_full")
        for file in [*store.files.values()]:
            await get(served, f"/v1/files/{file.id}", "DELETE")
        assert store.num_bytes == 0


async def test_without_a_folder_the_routes_name_the_setting(tmp_path: Path) -> None:
    async with batching(tmp_path / "models", batch_folder="") as served:
        for method, path in (("GET", "files"), ("POST", "batches"), ("GET", "batches/x")):
            answer = await ask(served, method, f"/v1/{path}", {} if method == "POST" else None)
            assert answer.status == 501
            assert "--batch-folder" in answer.json["error"]["message"]


async def test_a_folder_has_one_server(tmp_path: Path) -> None:
    async with batching(tmp_path / "models"):
        with pytest.raises(Exception, match="no other server has"):
            async with batching(tmp_path / "more", batch_folder=str(tmp_path / "batches")):
                pass


def names_in(folder: Path) -> list[str]:
    """The files of the folders in a folder."""
    return sorted(path.name for path in folder.glob("*/*"))


async def test_what_a_server_left_amid_writing_is_removed_and_takes_no_room(
    tmp_path: Path,
) -> None:
    """Drafts, contents and records alone, and results whose batch was forgotten."""
    settings = Settings(batch_folder=str(tmp_path))
    before = Store(settings)
    kept = await before.add(b"kept", "in.jsonl", "batch")
    alone = await before.add(b"alone", "in.jsonl", "batch")
    before.close()
    (tmp_path / "files" / alone.id).unlink()
    for left in ("files/file-1", "files/x.draft", "batches/b.json.draft", "batches/b.output"):
        (tmp_path / left).write_bytes(b"left")
    after = Store(settings)
    assert list(after.files) == [kept.id]
    assert after.num_bytes == len(b"kept")
    assert names_in(tmp_path) == [kept.id, f"{kept.id}.json"]
    after.close()


async def test_files_and_batches_need_a_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-the-tests\n")
    tokens.chmod(0o600)
    async with batching(tmp_path / "models", token_file=str(tokens)) as served:
        for path in ("files", "batches", "files/x/content"):
            assert (await ask(served, "GET", f"/v1/{path}")).status == 401
        key = [("authorization", "Bearer a-token-of-the-tests")]
        assert (await ask(served, "GET", "/v1/files", headers=key)).status == 200
