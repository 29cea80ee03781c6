"""A study of a model behind a server, from the name to the report."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from steelyard.core.errors import RefusedError
from steelyard.plan.study import load_study
from steelyard.running.session import run
from steelyard.running.summary import summarise
from steelyard.store.reader import open_read


class Handler(BaseHTTPRequestHandler):
    """Completes every prompt with one word, and gives no prompt log-probabilities whatever is asked."""

    seen: list[dict] = []  # noqa: RUF012  the test reads it

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "toy", "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append({"path": self.path, **body})
        text = " Paris\nQuestion: and then"
        choice = {"index": 0, "finish_reason": "stop", "text": text}
        if "messages" in body:
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        self.reply({"id": "x", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123")
    Handler.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"server:http://127.0.0.1:{httpd.server_port}/v1#toy"
        httpd.shutdown()
        thread.join()


def study(server, store, **keys):
    base = {"model": server, "tasks": "mini_facts", "forms": "nlg", "limit": 6, "shots": 1, "store": store}
    return load_study(None, {**base, **keys})


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_study_of_a_server_runs_resumes_and_stores_no_key(server, tmp_path, api):
    outcome = run(study(server, tmp_path, api=api))
    assert (outcome.models[0].asked, outcome.models[0].failed) == (6, 0)
    assert run(study(server, tmp_path, api=api)).models[0].asked == 0
    row = next(r for r in summarise(tmp_path).scores if r.primary)
    assert row.n_items == 6
    assert row.variant == ("chat" if api == "chat" else "")
    with open_read(tmp_path) as store:
        assert {r.text for r in store.responses().values()} == {" Paris"}  # cut at the template's stop
    for part in tmp_path.rglob("*.parquet"):
        assert b"sk-secret" not in part.read_bytes()


def test_draws_are_single_requests_with_their_own_seeds(server, tmp_path):
    run(study(server, tmp_path, repeats=3, limit=2))
    asked = [body for body in Handler.seen if not body.get("echo")]  # the probe echoes
    assert len(asked) == 6
    assert len({body["seed"] for body in asked}) == 6
    assert all(body.get("n", 1) == 1 for body in asked)


def test_a_system_message_reaches_a_chat_server(server, tmp_path):
    run(study(server, tmp_path, api="chat", system="Answer in one word."))
    assert Handler.seen
    assert all(
        body["messages"][0] == {"role": "system", "content": "Answer in one word."} for body in Handler.seen
    )


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_likelihoods_are_refused_while_planning_with_the_way_out(server, tmp_path, api):
    with pytest.raises(RefusedError, match="mini_facts mc"):
        run(study(server, tmp_path, forms="nlg,mc", api=api))
    with open_read(tmp_path) as store:
        assert not store.asks()


def test_chat_on_a_completions_server_points_to_the_chat_api(server, tmp_path):
    with pytest.raises(RefusedError, match="--api chat"):
        run(study(server, tmp_path, chat=True))
