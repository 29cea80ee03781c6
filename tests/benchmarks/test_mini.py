from __future__ import annotations

import ast
import importlib.util
import json
import re
import string
import unicodedata
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from steelyard.benchmarks import mini
from steelyard.benchmarks.base import Capability
from steelyard.core.errors import DataError, UnknownNameError
from steelyard.core.ids import content_hash
from steelyard.core.types import NumberAnswer, ProgramAnswer, TextAnswer

ROOT = Path(__file__).resolve().parents[2]
MAKER = ROOT / "bench" / "make_mini.py"
NAMES = ["mini_math", "mini_facts", "mini_reading", "mini_code"]
CALCULATION = re.compile(r"(\d+)([-+*/])(\d+) = <<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)")


@pytest.fixture(scope="module")
def maker():
    if not MAKER.exists():
        pytest.skip("the sources of the data files are only in the repository")
    spec = importlib.util.spec_from_file_location("make_mini", MAKER)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["make_mini"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


def everything(name):
    items, shots = mini.load_part(name)
    return [*items, *shots]


def words(text):
    return text.lower().translate(str.maketrans("", "", string.punctuation)).split()


def plain(text):
    """As exact-match scorers see it: no case, no punctuation, no articles."""
    return " ".join(w for w in words(text) if w not in {"a", "an", "the"})


def within(part, whole):
    return f" {part} " in f" {whole} "


def calculations(worked):
    """Left, operator, right and result of every annotated step; the plain text beside it must say the same."""
    found = []
    for line in worked.split("\n")[:-1]:
        (match,) = CALCULATION.finditer(line)
        left, operator, right, *annotated, result, shown = match.groups()
        assert [left, operator, right] == annotated
        assert result == shown
        found.append((int(left), operator, int(right), int(result)))
    return found


def evaluate(left, operator, right):
    match operator:
        case "+":
            return Fraction(left + right)
        case "-":
            return Fraction(left - right)
        case "*":
            return Fraction(left * right)
        case _:
            return Fraction(left, right)


# --------------------------------------------------------------------------------------------- every part
def test_the_four_parts_are_described_as_the_plan_needs_them():
    parts = {b.name: b for b in mini.BENCHMARKS}
    assert list(parts) == NAMES
    assert [b.capability for b in parts.values()] == [
        Capability.MATH,
        Capability.KNOWLEDGE,
        Capability.READING,
        Capability.CODE,
    ]
    assert [b.answer_type for b in parts.values()] == ["number", "text", "text", "program"]
    assert [b.shots for b in parts.values()] == [3, 3, 0, 0]
    assert [set(b.refuse) for b in parts.values()] == [
        set(),
        {"mc_ao", "ll_ao"},
        {"mc_ao", "ll_ao"},
        {"mc_ao", "ll_ao", "letters"},
    ]
    assert not any(b.hub or b.folders for b in parts.values())
    for part in parts.values():
        assert f"{len(mini.load_part(part.name)[0])} " in part.card


def test_each_part_has_at_least_48_items_and_exactly_8_shots_with_stable_ids(name):
    items, shots = mini.load_part(name)
    kind = name.removeprefix("mini_")
    assert len(items) >= 48
    assert [i.item_id for i in items] == [f"{kind}-{n:03}" for n in range(1, len(items) + 1)]
    assert [i.item_id for i in shots] == [f"shot-{kind}-{n:03}" for n in range(1, 9)]


def test_items_carry_their_hash_and_loading_twice_gives_the_same(name):
    assert mini.load_part(name) == mini.load_part(name)
    for item in everything(name):
        assert item.benchmark == name
        assert item.content_hash == content_hash(item)
    assert len({i.content_hash for i in everything(name)}) == len(everything(name))


def test_shots_share_neither_a_question_nor_a_group_with_evaluated_items(name):
    items, shots = mini.load_part(name)
    assert not {plain(i.question) for i in items} & {plain(i.question) for i in shots}
    groups = [{i.group for i in part if i.group} for part in (items, shots)]
    assert not groups[0] & groups[1]


def test_no_two_questions_are_nearly_the_same(name):
    for one, other in combinations(everything(name), 2):
        if one.group == other.group:  # what is asked about two passages may be worded alike
            a, b = set(words(one.question)), set(words(other.question))
            assert len(a & b) / len(a | b) < 0.75, (one.item_id, other.item_id)


def test_every_item_has_three_distractors_that_no_scorer_takes_for_right(name):
    for item in everything(name):
        aliases = item.reference.aliases if isinstance(item.reference, TextAnswer) else (item.gold.answer,)
        right = [plain(a) for a in aliases]
        wrong = [plain(o.answer) for o in item.distractors]
        assert len(wrong) == 3
        assert {o.source for o in item.distractors} == {"data"}
        if name == "mini_code":  # its punctuation counts: see the tests of programs
            continue
        assert len({*wrong, right[0]}) == 4, item.item_id
        for distractor in wrong:
            assert distractor not in right
            if isinstance(item.reference, TextAnswer):
                # neither holds the other, or the scorer "contains" could not tell them apart
                assert not any(within(distractor, a) or within(a, distractor) for a in right), item.item_id


def test_length_does_not_give_the_gold_away(name):
    items = everything(name)
    gold = sum(len(i.gold.full) for i in items) / len(items)
    wrong = sum(len(o.full) for i in items for o in i.distractors) / len(items) / 3
    assert 0.8 < gold / wrong < 1.25
    for extreme in (max, min):
        # the score of always choosing the longest (or shortest) option, ties split evenly
        rate = 0.0
        for item in items:
            lengths = [len(item.gold.full), *(len(o.full) for o in item.distractors)]
            best = extreme(lengths)
            rate += (lengths[0] == best) / lengths.count(best)
        assert 0.1 < rate / len(items) < 0.4, extreme


def test_files_are_plain_utf8_lines_of_json_in_normal_form(name):
    raw = mini._file(name).read_bytes()
    text = raw.decode("utf-8")
    assert not raw.startswith(b"\xef\xbb\xbf")
    assert text.endswith("}\n")
    assert unicodedata.normalize("NFC", text) == text
    assert not [
        c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"} and c != "\n"
    ]
    for line in text.splitlines():
        assert json.dumps(json.loads(line), ensure_ascii=False) == line


def test_files_are_what_their_sources_give(maker, name):
    assert maker.render(maker.build(name.removeprefix("mini_"))) == mini._file(name).read_text(
        encoding="utf-8"
    )


def test_mini_asks_for_no_path_outside_the_package_and_names_near_misses():
    with pytest.raises(UnknownNameError, match="Did you mean mini_math"):
        mini.load_part("mini_mth")


# --------------------------------------------------------------------------------------------------- math
def test_every_solution_right_or_wrong_is_consistent_in_itself():
    for item in everything("mini_math"):
        assert isinstance(item.reference, NumberAnswer)
        assert item.reference.value == int(item.gold.answer)
        for option in (item.gold, *item.distractors):
            steps = calculations(option.full)
            for left, operator, right, result in steps:
                assert evaluate(left, operator, right) == result, item.item_id
                assert result > 0
            assert option.full.endswith(f"\n#### {steps[-1][3]}")
            assert option.answer == str(steps[-1][3])


def test_right_solutions_use_only_numbers_of_the_problem_and_of_earlier_steps():
    in_words = {
        "twice": 2,
        "two": 2,
        "half": 2,
        "third": 3,
        "quarter": 4,
        "percent": 100,
        "hour": 60,
        "three": 3,
        "once": 2,
    }
    for item in everything("mini_math"):
        known = {int(n) for n in re.findall(r"\d+", item.question)}
        given = set(known)
        known |= {number for word, number in in_words.items() if word in words(item.question)}
        for left, _, right, result in calculations(item.gold.full):
            assert {left, right} <= known, item.item_id
            given -= {left, right}
            known.add(result)
        assert not given - {1}, f"{item.item_id}: {given} in the problem is never used"


def test_a_wrong_solution_has_one_wrong_step_and_recomputes_the_rest():
    for item in everything("mini_math"):
        right = calculations(item.gold.full)
        sentences = [CALCULATION.sub("", line) for line in item.gold.full.split("\n")[:-1]]
        for option in item.distractors:
            wrong = calculations(option.full)
            assert [CALCULATION.sub("", line) for line in option.full.split("\n")[:-1]] == sentences
            first = next(n for n, (a, b) in enumerate(zip(right, wrong, strict=True)) if a != b)
            assert right[first][:3] != wrong[first][:3]
            changed = {right[first][3]: wrong[first][3]}
            for (left, operator, other, result), now in zip(
                right[first + 1 :], wrong[first + 1 :], strict=True
            ):
                assert now[1] == operator
                assert now[0] in {left, changed.get(left)}
                assert now[2] in {other, changed.get(other)}
                changed[result] = now[3]


def test_words_agree_with_numbers():
    for item in everything("mini_math"):
        assert not re.search(r"\b1 \w+s\b", f"{item.question} {item.gold.full}"), item.item_id
        assert all(result >= 2 for *_, result in calculations(item.gold.full))
        assert int(item.gold.answer) < 10_000


def test_problems_take_one_to_four_steps_and_the_size_of_a_number_does_not_give_it_away():
    items = everything("mini_math")
    steps = Counter(len(calculations(i.gold.full)) for i in items)
    assert set(steps) == {1, 2, 3, 4}
    assert min(steps.values()) >= 8
    ranks = Counter(sum(int(o.answer) < int(i.gold.answer) for o in i.distractors) for i in items)
    assert set(ranks) == {0, 1, 2, 3}
    assert max(ranks.values()) < 0.4 * len(items)


# ---------------------------------------------------------------------------------------- facts and reading
def test_facts_cover_several_subjects_and_do_not_hold_their_answer():
    items = everything("mini_facts")
    subjects = Counter(i.fields["subject"] for i in items)
    assert len(subjects) >= 5
    assert max(subjects.values()) < len(items) / 2
    for item in items:
        assert not any(within(plain(a), plain(item.question)) for a in item.reference.aliases if len(a) > 1)
        for option in item.distractors:
            assert not within(plain(option.full), plain(item.question)), item.item_id


def test_reading_passages_are_short_and_answers_stand_in_them_word_for_word():
    items = everything("mini_reading")
    passages = {i.group: i.fields["passage"] for i in items}
    assert len(passages) >= 16
    assert len(set(passages.values())) == len(passages)
    for passage in passages.values():
        assert 60 <= len(passage.split()) <= 130
    for item in items:
        assert item.fields["passage"] == passages[item.group]
        assert re.search(rf"(?<!\w){re.escape(item.gold.full)}(?!\w)", item.fields["passage"]), item.item_id
        assert plain(item.gold.full) not in plain(item.question)


def test_most_reading_distractors_are_spans_of_the_passage_too():
    items = everything("mini_reading")
    spans = [within(plain(o.full), plain(i.fields["passage"])) for i in items for o in i.distractors]
    assert sum(spans) / len(spans) > 0.6


def test_each_passage_has_enough_other_answers_for_random_distractors():
    by_passage = defaultdict(list)
    for item in everything("mini_reading"):
        by_passage[item.fields["passage"]].append(item)
    for items in by_passage.values():
        for item in items:
            right = {plain(a) for a in item.reference.aliases}
            others = {plain(i.gold.full) for i in items} - right
            assert len(others) >= 3
            assert not any(within(o, a) or within(a, o) for o in others for a in right), item.item_id


# --------------------------------------------------------------------------------------------------- code
def test_programs_parse_and_wrong_bodies_are_other_programs():
    for item in everything("mini_code"):
        assert isinstance(item.reference, ProgramAnswer)
        trees = [ast.parse(item.question + o.full) for o in (item.gold, *item.distractors)]
        assert len({ast.dump(tree) for tree in trees}) == 4
        for tree in trees:
            (function,) = tree.body
            assert isinstance(function, ast.FunctionDef)
            assert function.name == item.reference.entry_point
            assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        assert item.question.endswith('    """\n')
        assert all(
            o.full.startswith("    ") and o.full.endswith("\n") for o in (item.gold, *item.distractors)
        )
        assert item.reference.tests.startswith("def check(candidate):\n    assert candidate(")


def test_docstring_examples_are_among_the_tests_and_written_as_python_shows_them():
    for item in everything("mini_code"):
        entry = item.reference.entry_point
        examples = re.findall(rf"    >>> {entry}\((.*)\)\n    (.*)\n", item.question)
        assert len(examples) == 2
        for arguments, value in examples:
            assert repr(ast.literal_eval(value)) == value
            assert f"    assert candidate({arguments}) == {value}\n" in item.reference.tests
        assert item.reference.tests.count("assert ") >= 3


def jobs():
    return [
        {
            "prompt": item.question,
            "entry_point": item.reference.entry_point,
            "canonical_solution": item.reference.solution,
            "test": item.reference.tests,
            "distractors": [o.full for o in item.distractors],
        }
        for item in everything("mini_code")
    ]


def test_right_programs_pass_and_wrong_ones_fail_by_a_wrong_answer(maker):
    assert maker.run_programs(jobs()) == []


def test_the_check_of_programs_would_notice_a_right_distractor_a_crash_and_a_wrong_gold(maker):
    job = jobs()[0]
    right, wrong = job["canonical_solution"], job["distractors"][0]
    assert "right instead of wrong" in maker.run_programs([job | {"distractors": [right]}])[0]
    assert "ZeroDivisionError" in maker.run_programs([job | {"distractors": ["    return 1 / 0\n"]}])[0]
    assert "wrong instead of right" in maker.run_programs([job | {"canonical_solution": wrong}])[0]


# ----------------------------------------------------------------------------------------- damaged files
def damaged(monkeypatch, tmp_path, name, change):
    """Load a part whose first row was changed."""
    lines = mini._file(name).read_text(encoding="utf-8").splitlines()
    lines[0] = change(lines[0])
    path = tmp_path / f"{name}.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(mini, "_file", lambda _: path)
    return mini.load_part(name)


def edit(**fields):
    return lambda line: json.dumps(json.loads(line) | fields)


def test_each_missing_or_mistyped_field_is_an_error_with_its_line_and_name(monkeypatch, tmp_path, name):
    for key in json.loads(mini._file(name).read_text(encoding="utf-8").splitlines()[0]):
        for change in (
            lambda line, key=key: json.dumps({k: v for k, v in json.loads(line).items() if k != key}),
            edit(**{key: 7}),
        ):
            with monkeypatch.context() as patch, pytest.raises(DataError, match=rf"line 1 .*{key}"):
                damaged(patch, tmp_path, name, change)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("mini_facts", lambda line: line[:-5], "line 1 .*JSON"),
        ("mini_facts", lambda _: "[]", "line 1 .*object"),
        ("mini_facts", edit(id="facts-002"), "facts-002"),
        ("mini_facts", edit(id="shot-facts-001"), "shot-facts-001"),
        ("mini_facts", edit(distractors=["Lyon", "Nice"]), "3 texts"),
        ("mini_facts", edit(distractors=["Lyon", "Nice", "Lyon"]), "different"),
        ("mini_facts", edit(distractors=["Lyon", "Nice", "Paris"]), "different"),
        ("mini_facts", edit(aliases=[]), "aliases"),
        ("mini_facts", edit(question=" "), "question"),
        ("mini_facts", edit(split="train"), "split"),
        ("mini_math", edit(answer="twelve", worked="12\n#### twelve"), "answer"),
        ("mini_math", edit(answer="13"), "last line"),
        ("mini_math", edit(distractors=["12", "13", "14"]), "distractors|full"),
        ("mini_reading", edit(aliases=["Nobody"]), "passage"),
        ("mini_code", edit(entry_point="a b"), "entry_point"),
    ],
)
def test_a_row_that_does_not_fit_is_an_error_when_loading(monkeypatch, tmp_path, part, change, message):
    with pytest.raises(DataError, match=message):
        damaged(monkeypatch, tmp_path, part, change)


def test_a_missing_file_is_a_data_error(monkeypatch, tmp_path):
    monkeypatch.setattr(mini, "_file", lambda _: tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"mini_math\.jsonl"):
        mini.load_part("mini_math")
