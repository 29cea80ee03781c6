from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from steelyard.store import open_read, open_store

# Asks what is not answered yet, as a run does, and says each batch after it is on disk. Merges often.
# One process imports and forks a writer for each line it reads: starting Python anew would take most of the time.
CHILD = """
import os, sys
import duckdb, pyarrow.parquet
from steelyard.core.types import Batch, Finish, Response
from steelyard.store import compaction, open_read, open_store

compaction.MANY_PARTS = 6

def write(path, name, limit):
    with open_store(path) as writer:
        with open_read(path) as store:
            done = store.answered(name)
        for number in range(limit):
            ids = [f"{name}-{number}-{place}" for place in range(3)] + [f"shared-{number}"]
            if done.issuperset(ids[:3]):
                continue
            writer.append_batch(name, Batch(responses=tuple(
                Response(request_id=i, text=i + " by " + name, finish=Finish.EOS) for i in ids
            ), asked=4))
            print(number, flush=True)
            if number % 5 == 0:
                writer.compact()

path, name, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
if name != "fork":
    write(path, name, limit)
for line in sys.stdin if name == "fork" else ():
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        write(path, "R", limit)
        os._exit(0)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


def start(path, name, limit=2000):
    command = [sys.executable, "-c", CHILD, str(path), name, str(limit)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def check(path):
    """Every part is whole, every key counts once; the answers."""
    with open_read(path) as store:
        store.verify()
        for table, key in (("responses", "request_id"), ("batches", "batch_id")):
            twice = f"SELECT {key} FROM {table} GROUP BY {key} HAVING count(*) > 1"  # noqa: S608 - names above
            assert store.query(twice).num_rows == 0
        responses = store.responses()
    assert all(r.text.startswith(f"{i} by ") for i, r in responses.items())
    return set(responses)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks and kills")
def test_a_writer_killed_at_any_instant_loses_nothing_that_it_said_was_written(tmp_path):
    dice = random.Random(0)
    open_store(tmp_path)
    before = set()
    with start(tmp_path, "fork") as nursery:
        # a child ends only by being killed, so every line is either a number or the word
        def say():
            return nursery.stdout.readline().strip()

        for _ in range(15):
            print("go", file=nursery.stdin, flush=True)
            writer = int(say())
            said = set()
            for _ in range(dice.randrange(7)):
                said.add(int(say()))
            time.sleep(dice.random() * 0.03)
            os.kill(writer, signal.SIGKILL)
            while (line := say()) != "dead":
                said.add(int(line))
            answers = check(tmp_path)
            assert answers >= before
            assert answers >= {f"R-{number}-{place}" for number in said for place in range(3)}
            before = answers
        nursery.stdin.close()
    assert len(before) > 40
    open_store(tmp_path)
    assert list(tmp_path.rglob(".tmp-*")) == []


def test_two_processes_may_write_one_store_at_once(tmp_path):
    children = [start(tmp_path / "store", name, limit=30) for name in ("R", "S")]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    answers = check(tmp_path / "store")
    own = {f"{name}-{n}-{p}" for name in "RS" for n in range(30) for p in range(3)}
    assert answers == own | {f"shared-{n}" for n in range(30)}
    with open_read(tmp_path / "store") as store:
        assert {k: v.batches for k, v in store.work().items()} == {"R": 30, "S": 30}
        assert store.work()["R"].asked == 120
