"""The commands as a user meets them: output, JSON keys, exit codes, errors without tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.running.estimate import Speed

RUN = ["--model", "simulated", "--tasks", "simulated", "--forms", "nlg,mc,ll", "--limit", "8"]
SCORE_KEYS = [
    "model",
    "step",
    "benchmark",
    "form",
    "template",
    "metric",
    "value",
    "se",
    "low",
    "high",
    "level",
    "n_items",
    "n_samples",
    "chance",
    "status_counts",
    "diagnostics",
]


@pytest.fixture
def steelyard(monkeypatch, capsys):
    """Run a command in this process: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["steelyard", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_run_then_report_then_run_again(steelyard, tmp_path):
    store = tmp_path / "s"
    code, out, _ = steelyard("run", *RUN, "--store", store)
    assert code == 0
    assert f"Next: steelyard report {store}" in out
    code, out, _ = steelyard("report", store)
    assert code == 0
    assert "exact_match" in out
    assert "chance" in out
    assert "seeded random 8 of 200" in " ".join(out.split())
    code, out, _ = steelyard("run", *RUN, "--store", store)
    assert "no model work was done" in out


def test_the_json_report_has_the_documented_keys_in_order(steelyard, tmp_path):
    steelyard("run", *RUN, "--store", tmp_path)
    code, out, _ = steelyard("report", tmp_path, "--json")
    assert code == 0
    report = json.loads(out)
    assert {s["form"] for s in report["scores"]} == {"nlg", "mc", "ll"}
    for score in report["scores"]:
        assert list(score)[: len(SCORE_KEYS)] == SCORE_KEYS
    mc = {s["metric"]: s for s in report["scores"] if s["form"] == "mc"}
    assert set(mc) == {"none", "per_char", "per_byte", "per_token", "pmi"}
    assert all(s["chance"] == 0.25 for s in mc.values())
    assert all(s["low"] < s["value"] < s["high"] or s["value"] in {0, 1} for s in mc.values())
    ll = {s["metric"] for s in report["scores"] if s["form"] == "ll"}
    assert ll == {"loglik_sum", "loglik", "bits_per_byte"}


def test_the_page_is_written_and_the_plot_too(steelyard, tmp_path):
    steelyard("run", *RUN, "--store", tmp_path / "s")
    code, out, _ = steelyard(
        "report", tmp_path / "s", "--html", tmp_path / "p.html", "--plot", tmp_path / "p.svg"
    )
    assert code == 0
    assert str(tmp_path / "p.html") in out.replace("\n", "")
    assert (tmp_path / "p.html").read_text("utf-8").startswith("<!doctype html>")
    assert "<svg" in (tmp_path / "p.svg").read_text("utf-8")


def test_score_judges_again(steelyard, tmp_path):
    steelyard("run", *RUN, "--store", tmp_path)
    code, out, _ = steelyard("score", tmp_path, "--json")
    assert code == 0
    assert json.loads(out)["changed"] == 0


def test_plan_costs_nothing_and_says_what_sharing_saves(steelyard, tmp_path):
    code, out, _ = steelyard("plan", *RUN, "--store", tmp_path / "s", "--json")
    assert code == 0
    (plan,) = json.loads(out)["plans"]
    assert plan["total"]["requests"] == plan["left"]["requests"] > 0
    assert plan["total"]["sharing"] > 1
    assert not (tmp_path / "s").exists()
    steelyard("run", *RUN, "--store", tmp_path / "s")
    _, out, _ = steelyard("plan", *RUN, "--store", tmp_path / "s")
    assert "Everything is answered already" in out


def test_show_prints_the_prompt_with_the_boundary_and_token_ids(steelyard):
    code, out, _ = steelyard(
        "show", "--model", "simulated", "--task", "mini_facts", "--form", "mc", "--item", "3"
    )
    assert code == 0
    assert "Answer:▌" in out
    assert "tokens:" in out
    code, out, _ = steelyard(
        "show", "--model", "simulated", "--task", "mini_facts", "--form", "mc", "--item", "3", "--json"
    )
    shown = json.loads(out)["models"][0]
    for request in shown["requests"]:
        assert bytes(request["token_ids"][1:]).decode() == request["context"] + request["continuation"]
        joined = bytes(request["token_ids"][1 : request["boundary"]]).decode()
        assert joined == request["context"]


def test_check_exits_with_1_when_an_item_is_wrong(steelyard, tmp_path):
    (tmp_path / "b.jsonl").write_text('{"q": "x?", "a": "y"}\n{"q": "z?"}\n')
    (tmp_path / "b.toml").write_text(
        'name = "b"\nfile = "b.jsonl"\nanswer_type = "text"\n[fields]\nquestion = "q"\nreference = "a"\n'
    )
    code, out, _ = steelyard("check", tmp_path / "b.toml")
    assert code == 1
    assert "'a'" in out
    (tmp_path / "b.jsonl").write_text('{"q": "x?", "a": "y"}\n{"q": "z?", "a": "w"}\n')
    assert steelyard("check", tmp_path / "b.toml")[0] == 0


def test_check_finds_a_template_that_does_not_fit_and_a_scorer_that_does_not_exist(steelyard, tmp_path):
    (tmp_path / "b.jsonl").write_text('{"q": "x?", "a": "y"}\n')
    base = 'name = "b"\nfile = "b.jsonl"\nanswer_type = "text"\n'
    fields = '[fields]\nquestion = "q"\nreference = "a"\n'
    (tmp_path / "b.toml").write_text(base + fields + '[templates.t]\nquestion = "{{ passage }}"\n')
    code, out, _ = steelyard("check", tmp_path / "b.toml")
    assert code == 1
    assert "passage" in out
    (tmp_path / "b.toml").write_text(base + 'scorers = ["exact_mach"]\n' + fields)
    code, out, _ = steelyard("check", tmp_path / "b.toml")
    assert code == 1
    assert "exact_match" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--model", "simulated", "--tasks", "gsm8"], "Did you mean gsm8k"),
        (["run", "--model", "smolm2", "--tasks", "mini"], "smollm2"),
        (["run", "--model", "simulated", "--tasks", "simulated", "--forms", "mc_rdn"], "mc_rnd"),
        (["run", "--tasks", "mini"], "model"),
        (["run", "--model", "simulated", "--tasks", "simulated", "--limit", "0"], "limit"),
        (["run", "--model", "simulated", "--tasks", "triviaqa", "--data", "/nowhere"], "/nowhere"),
        (["run", "none.yaml"], "none.yaml"),
        (["report", "/nowhere"], "no store"),
        (["score", "/nowhere"], "no store"),
        (["check", "/nowhere.toml"], "no file"),
        (["show", "--model", "simulated", "--task", "simulated", "--item", "999"], "999"),
        (["show", "--model", "simulated", "--task", "mini"], "one benchmark"),
        (["run", "--model", "server:http://user:secret@127.0.0.1:9/v1#m", "--tasks", "mini"], "environment"),
    ],
)
def test_wrong_input_exits_with_2_and_says_what_to_do(steelyard, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = steelyard(*arguments)
    assert code == 2
    assert says in " ".join(err.split())
    assert "Traceback" not in out + err
    assert "secret" not in err


def test_unknown_options_are_errors_with_near_misses(steelyard):
    code, _, err = steelyard("run", "--modle", "x")
    assert code == 2
    assert "--model" in err


def test_ctrl_c_leaves_a_resumable_store_and_says_how(tmp_path):
    arguments = ["run", *RUN, "--limit", "20", "--batch-size", "1", "--store", str(tmp_path / "s")]
    command = [sys.executable, "-c", "from steelyard.cli.main import main; main()", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "s" / "responses").glob("part-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on from there" in err
    assert "--store" in err
    assert "Traceback" not in err
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    assert "were answered before" in done.stdout


@pytest.mark.parametrize("width", [50, 80, 140])
def test_the_plan_cuts_no_name_and_no_number_at_any_width(steelyard, monkeypatch, tmp_path, width):
    monkeypatch.setenv("COLUMNS", str(width))
    arguments = ["--model", "simulated", "--tasks", "mini", "--forms", "mc,mc_rnd,ll", "--limit", "4"]
    arguments += ["--skip-refused", "--store", tmp_path / "s", "--no-probe"]
    _, out, _ = steelyard("plan", *arguments, "--json")
    (plan,) = json.loads(out)["plans"]
    code, out, _ = steelyard("plan", *arguments)
    assert code == 0
    assert "…" not in out
    head = next(line for line in out.splitlines() if "requests" in line)
    assert len(head) <= max(width, 64)
    words = out.split()
    for form in plan["forms"]:
        assert form["benchmark"] in words
        assert f"{form['tokens']:,}" in words
        assert f"{form['distinct']:,}" in words
    assert f"{plan['total']['tokens']:,}" in words


def test_a_plan_for_a_server_that_counts_no_tokens_has_an_estimate_in_requests(
    steelyard, monkeypatch, tmp_path
):
    monkeypatch.setattr("steelyard.cli.planning.probe_speed", lambda *_: Speed(None, None, 2.0))
    code, out, _ = steelyard("plan", *RUN, "--store", tmp_path / "s")
    assert code == 0
    assert "2.0 requests/s" in out


def test_without_a_terminal_progress_leaves_no_empty_lines(steelyard, tmp_path):
    _, _, err = steelyard("run", *RUN, "--store", tmp_path / "s")
    assert err == ""


def test_a_page_that_cannot_be_written_costs_no_earlier_one(steelyard, tmp_path, monkeypatch):
    steelyard("run", *RUN, "--store", tmp_path / "s")
    page = tmp_path / "p.html"
    page.write_text("the earlier page")
    write = Path.write_text

    def full(self, *arguments, **options):
        write(self, "<!doc")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, _, err = steelyard("report", tmp_path / "s", "--html", page)
    monkeypatch.undo()
    assert code == 2
    assert "No space left" in err
    assert page.read_text() == "the earlier page"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.html", "s"]


def test_a_page_may_go_to_a_device(steelyard, tmp_path):
    steelyard("run", *RUN, "--store", tmp_path / "s")
    code, _, _ = steelyard("report", tmp_path / "s", "--html", os.devnull)
    assert code == 0
    assert not Path(os.devnull).is_file()


def test_check_takes_no_folder_and_counts_as_one_speaks(steelyard, tmp_path):
    code, _, err = steelyard("check", tmp_path)
    assert code == 2
    assert "is a folder" in err
    (tmp_path / "b.toml").write_text('name = "B<b>"\nfile = "b.jsonl"\nanswer_type = "text"\n')
    code, out, _ = steelyard("check", tmp_path / "b.toml")
    assert code == 1
    assert "1 error, 0 warnings." in out
    assert "\\n" not in out


def test_the_demo_gives_its_report_as_json(steelyard, tmp_path, monkeypatch):
    small = ("one", {"tasks": "mini_facts", "forms": "mc", "limit": 3, "shots": 1})
    monkeypatch.setattr("steelyard.cli.demo.STUDIES", (small,))
    files = ["--store", tmp_path / "s", "--html", tmp_path / "p.html"]
    code, out, _ = steelyard("demo", "--model", "simulated", *files, "--json")
    assert code == 0
    assert json.loads(out)["scores"]
    assert (tmp_path / "p.html").exists()


def test_the_end_of_a_run_tells_what_sharing_saved_in_one_sentence(steelyard, tmp_path, monkeypatch):
    from dataclasses import replace

    from steelyard.engine.simulated import SimulatedBackend

    whole = SimulatedBackend.run

    def halved(self, *arguments, **options):
        for batch in whole(self, *arguments, **options):
            yield replace(batch, computed=batch.asked // 4, peak_memory=3 * 2**30, prefill_rate=1e6)

    monkeypatch.setattr(SimulatedBackend, "run", halved)
    monkeypatch.setattr(SimulatedBackend, "sharing", "this family cannot be shared.", raising=False)
    code, out, err = steelyard("run", *RUN, "--store", tmp_path / "s")
    assert code == 0
    (line,) = [line for line in out.splitlines() if "saved" in line]
    assert line.startswith("Requests have much text in common, which was computed once: ")
    assert line.endswith(" 75 % of the work saved.")
    assert err.count("simulated: this family cannot be shared.") == 1
    _, out, err = steelyard("run", *RUN, "--store", tmp_path / "s", "--json")
    (model,) = json.loads(out)["models"]
    assert model["work"]["requests"] == 0
    assert model["work"]["saved"] is None
    assert "cannot be shared" not in err  # nothing was computed
    _, out, _ = steelyard("run", *RUN, "--store", tmp_path / "p", "--engine", "plain", "--json")
    (model,) = json.loads(out)["models"]
    assert model["notes"] == []
    assert model["work"]["saved"] == pytest.approx(4, rel=0.01)
    assert model["work"]["peak_memory"] == 3 * 2**30
    _, out, _ = steelyard("report", tmp_path / "p", "--json")
    (work,) = json.loads(out)["work"]
    assert {n: work[n] for n in model["work"]} == model["work"]
    assert list(work)[:4] == ["model", "requests", "asked", "computed"]
    _, out, _ = steelyard("report", tmp_path / "p")
    assert "saved 4.0x" in " ".join(out.split())
    assert "peak memory 3.0 GiB" in " ".join(out.split())


def test_without_anything_saved_the_end_of_a_run_says_nothing_of_it(steelyard, tmp_path):
    _, out, _ = steelyard("run", *RUN, "--store", tmp_path / "s")
    assert "of the work saved" not in out


def test_selfcheck_takes_the_built_in_benchmark_or_a_study_and_stores_nothing(
    steelyard, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = steelyard("selfcheck", "--model", "simulated", "--requests", "30")
    assert (code, err) == (0, "")
    assert "a seeded sample of" in " ".join(out.split())
    assert "The answers are the same within 0.0001 nats per token." in " ".join(out.split())
    code, out, _ = steelyard("selfcheck", *RUN, "--requests", "20", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["ok"]
    assert [p["batch_size"] for p in found["models"][0]["passes"]] == [1, 8, 32, None]
    assert found["models"][0]["sample"]["requests"] >= 20
    assert not list(tmp_path.iterdir())


def test_selfcheck_exits_with_1_and_names_what_differs(steelyard, monkeypatch):
    from dataclasses import replace

    from steelyard.engine.simulated import SimulatedBackend

    score = SimulatedBackend._score
    run = SimulatedBackend.run

    def in_batches(self, *arguments, batch_size, **options):
        self.size = batch_size
        return run(self, *arguments, batch_size=batch_size, **options)

    def shifted(self, *arguments):
        response = score(self, *arguments)
        off = 9.0 if self.size == 8 and arguments[-1].endswith(b"a") else 0.0
        return replace(response, logprob=response.logprob - off)

    monkeypatch.setattr(SimulatedBackend, "run", in_batches)
    monkeypatch.setattr(SimulatedBackend, "_score", shifted)
    arguments = [
        "selfcheck",
        "--model",
        "simulated",
        "--tasks",
        "simulated",
        "--forms",
        "mc",
        "--limit",
        "40",
    ]
    code, out, _ = steelyard(*arguments, "--requests", "160")
    text = " ".join(out.split())
    assert code == 1
    assert "More differs than rounding explains (allowed: 0.0001 nats per token)" in text
    assert "8 at once: a likelihood differs by" in text
    assert "no tie." in text
    assert "32 at once: a likelihood" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "simulated", "--tasks", "gsm8"], "Did you mean gsm8k"),
        (["--model", "server:http://127.0.0.1:9/v1#m"], "cuts its batches itself"),
        (["--tasks", "mini"], "model"),
        (["--model", "simulated", "--requests", "0"], "--requests"),
        (["--model", "simulated", "--store", "s"], "--store"),
    ],
)
def test_selfcheck_refuses_what_makes_no_sense(steelyard, arguments, says):
    code, out, err = steelyard("selfcheck", *arguments)
    assert code == 2
    assert says in " ".join(err.split())
    assert "Traceback" not in out + err
