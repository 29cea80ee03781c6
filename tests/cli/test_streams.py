"""Printing never ends in a traceback: old locales, full disks, closed streams, readers that leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.cli import main as commands
from steelyard.plan.study import load_study
from steelyard.running.session import run

COMMAND = [sys.executable, "-c", "from steelyard.cli.main import main; main()"]
posix = pytest.mark.skipif(os.name == "nt", reason="devices and pipes of POSIX")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "s"
    keys = {"model": "simulated", "tasks": "simulated", "forms": "nlg,mc", "limit": 4}
    run(load_study(None, {**keys, "store": path}))
    return path


def call(*arguments: object, **options):
    environment = {**os.environ, **options.pop("env", {})}
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_without_unicode_gets_the_table_in_its_own_signs(store, encoding):
    done = call("report", store, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": encoding, "COLUMNS": "90"})
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "|" in text
    assert "o" in text
    assert "\\u2500" not in text


def test_json_is_utf_8_whatever_the_locale_says(store):
    done = call(
        "show",
        "--model", "simulated", "--task", "mini_facts", "--json",
        stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert json.loads(done.stdout.decode("utf-8"))["models"]


@posix
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_full_disk_behind_standard_output_is_a_message(store, extra):
    with Path("/dev/full").open("wb") as full:
        done = call("report", store, *extra, stdout=full)
    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@posix
def test_a_closed_standard_output_is_no_fault(store):
    script = f'{" ".join(["exec", *COMMAND[:2]])} "{COMMAND[2]}" report "{store}" --json >&-'
    done = subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@posix
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_reader_that_leaves_ends_the_command_as_a_signal_would_and_not_as_a_verdict(store, extra):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = call("report", store, *extra, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ZeroDivisionError("division"), "not foreseen"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_what_nobody_foresaw_is_a_message_too(store, error, says, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("steelyard.cli.reporting.summarise", fail)
    monkeypatch.setattr(sys, "argv", ["steelyard", "report", str(store)])
    with pytest.raises(SystemExit) as stop:
        commands.main()
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err
    monkeypatch.setenv("STEELYARD_TRACEBACK", "1")
    with pytest.raises(type(error)):
        commands.main()


def test_nothing_in_an_error_message_acts_on_the_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["steelyard", "report", "/no\x1b[2J\u202ewhere"])
    with pytest.raises(SystemExit):
        commands.main()
    err = capsys.readouterr().err
    assert "\x1b[2J" not in err
    assert "\u202e" not in err
    assert "\\u202e" in err
