"""What `make reproduce` asks: which checkpoints, what is shared, and that nothing is computed twice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from analyses.running import cli, plan, questions
from analyses.running.ask import Ask, everything, near, up_to
from analyses.running.cache import Cache
from analyses.running.plan import asks_for, chosen, jobs_of, run_plan
from analyses.running.pool import Engine
from analyses.running.questions import answer, keys_of, options_of, questions_of
from analyses.running.subject import find_subjects
from analyses.studies import worlds
from models.running.command_line import BadInput
from tests import tiny_zoo


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    return tiny_zoo.plant(tmp_path_factory.mktemp("zoo"), families=("construction", "disentangled"))


def asked(*wanted):
    known = tiny_zoo.tiny_asks()
    return {name: known[name] for name in wanted}


def names(checkpoints):
    return [checkpoint.name for checkpoint in checkpoints]


def test_every_shipped_analysis_says_what_it_is_to_be_asked():
    asks = plan.shipped_asks()
    assert set(questions.analyses()) - set(asks) == {
        "compare",
        "copying_scores",
        "replacement",
        "scan",
        "track",
    }  # for the command line alone
    for name, ask in asks.items():
        assert ask.options is None or type(ask.options) is options_of(name)
        assert ask.cost > 0


def test_an_analysis_without_an_ask_is_left_out(monkeypatch):
    module = questions.load_module("lag_pairs")
    monkeypatch.delattr(module, "ASK")
    assert "lag_pairs" not in plan.shipped_asks()
    with pytest.raises(BadInput, match="no analysis 'lag_pairs' that figures can run"):
        asks_for(["lag_pairs"])


def test_selections(zoo):
    found = find_subjects(zoo)
    assert len(found) == 8
    assert names(everything(found)) == names(found)
    assert up_to(8)(found) == []
    first = near(64, 128, seeds=1)(found)
    assert names(first) == [name for name in names(found) if name.endswith("seed0")]
    assert len(near(64)(found)) == 8


def test_checkpoints_that_an_analysis_is_not_for_are_left_out(zoo):
    found = find_subjects(zoo)
    assert [Path(path).name for path in chosen("dynamics", Ask(), found)] == [
        "T16_seed0"
    ]  # the one that kept snapshots
    shape = {**found[0].model_config, "family": "standard", "d_model": 64}
    standard = replace(found[0], info=replace(found[0].info, model=shape))
    assert chosen("vote_weight", Ask(), [standard, *found[1:]]) == [str(one.path) for one in found[1:]]


def with_info(one, **words):
    """The subject with another length, protocol or start."""
    model = {**one.model_config, **{name: words[name] for name in ("length",) if name in words}}
    training = {**one.training, **{name: words[name] for name in ("protocol", "init") if name in words}}
    return replace(one, info=replace(one.info, model=model, training=training), name=words.get("name", one.name))


def test_nearest_lengths_are_taken_by_ratio(zoo):
    (one,) = [one for one in find_subjects(zoo) if one.name == "hierarchical_bos/construction/free/T16_seed0"]
    longer = [with_info(one, length=length, name=f"{one.name}-{length}") for length in (16, 90, 129)]
    assert [one.model_config["length"] for one in near(64, 128)(longer)] == [90, 129]
    assert [one.model_config["length"] for one in near(40)(longer)] == [90]
    assert [one.model_config["length"] for one in near(20)(longer)] == [16]


def test_every_start_has_its_nearest_length(zoo):
    one = next(one for one in find_subjects(zoo) if one.name.endswith("disentangled/soft/T16_seed0"))
    made = [("soft", "random(0.3)", 16), ("hard", "copy(40)", 16), ("hard", "copy(40)", 90), ("copy8", "copy(8)", 90)]
    found = [with_info(one, name=f"{start}-{length}", init=init, length=length) for start, init, length in made]
    assert [one.summary()["start"] for one in found] == [start for start, _, _ in made]
    assert names(near(16, seeds=1)(found)) == ["soft-16", "hard-16", "copy8-90"]
    assert names(worlds.chosen(found, one.prior, length=90, every=False)) == ["hard-90", "copy8-90"]


def test_questions_about_one_checkpoint_are_one_job_and_so_are_pieces_that_share_an_optimum(zoo, tmp_path):
    wanted = asked("copy_heads", "beta_kappa", "overlap_mass", "lag_asymmetry", "kl_curves", "optimal", "theory")
    found = find_subjects(zoo)
    mine = [
        question
        for name, ask in wanted.items()
        for question in questions_of(name, ask.options, chosen(name, ask, found))
    ]
    lengths = {str(one.path): one.model_config["length"] for one in found}
    jobs = jobs_of({question: {} for question in mine}, wanted, lengths=lengths, cache=tmp_path)
    assert sorted(one.words for job in jobs for one in job.task[0]) == sorted(one.words for one in mine)
    by_checkpoint = [list(job.task[0]) for job in jobs if job.kind == "checkpoint"]
    assert len(by_checkpoint) == len(found)
    for group in by_checkpoint:
        assert [one.analysis for one in group] == ["copy_heads", "beta_kappa", "overlap_mass", "lag_asymmetry"]
        assert len({one.checkpoint for one in group}) == 1

    def job_of(words):
        return next(job for job in jobs if words in {one.words for one in job.task[0]})

    place = job_of("kl_curves hierarchical:5 T=16")
    assert {one.analysis for one in place.task[0]} == {"kl_curves", "optimal"}
    assert place.cost > job_of("kl_curves hierarchical:5 T=8").cost


def test_second_run_reads_what_the_first_computed(zoo, tmp_path, monkeypatch):
    wanted = asked("beta_kappa", "lag_asymmetry", "construction_attention", "pseudo_counts")
    run = run_plan(wanted, zoo=zoo, cache=tmp_path, jobs=1)
    first = run.tables
    assert [len(first[name].rows) for name in wanted] == [8, 8, 3, 18]
    assert run.made == set(run.seconds)
    assert {row["subject"]["family"] for row in first["beta_kappa"].rows} == {"construction", "disentangled"}
    planted = [row for row in first["beta_kappa"].rows if row["subject"]["family"] == "construction"]
    assert planted[0]["beta"] == pytest.approx(tiny_zoo.BETA, abs=1e-3)

    monkeypatch.setattr(plan, "perform", lambda task: pytest.fail(f"{next(iter(task[0])).words} ran again"))
    again = run_plan(wanted, zoo=zoo, cache=tmp_path, jobs=1)
    assert again.tables == first
    assert again.made == set()
    assert again.seconds == run.seconds
    # Another option is another question.
    ask = wanted["construction_attention"]
    wanted["construction_attention"] = replace(ask, options=replace(ask.options, length=12))
    with pytest.raises(pytest.fail.Exception, match="construction_attention ran again"):
        run_plan(wanted, zoo=zoo, cache=tmp_path, jobs=1)


def test_changed_weights_are_analysed_anew_and_only_they(tmp_path):
    zoo = tiny_zoo.plant(tmp_path / "zoo", seeds=1, families=("construction", "disentangled"))
    wanted = asked("copy_heads", "theory")
    run_plan(wanted, zoo=zoo, cache=tmp_path / "cache", jobs=1)
    path = zoo / "independent_nobos/disentangled/soft/T16_seed0"
    tiny_zoo.ip.save(
        tiny_zoo.model_of("disentangled", kappa=None, seed=7),
        path,
        training=tiny_zoo.training(tiny_zoo.INDEPENDENT, seed=0),
    )
    made = run_plan(wanted, zoo=zoo, cache=tmp_path / "cache", jobs=1).made
    assert [question.checkpoint for question in made] == [str(path)]


# Which files of a zoo an analysis reads: its key must name each one.

READ: list[str] = []
WATCHED: list[str] = []


def watch(event, arguments):
    if WATCHED and event == "open" and isinstance(arguments[0], (str, os.PathLike)):
        place = os.path.realpath(os.fspath(arguments[0]))
        if place.startswith(WATCHED[0]):
            READ.append(place)


@pytest.fixture(scope="module")
def watching(zoo):
    import sys

    sys.addaudithook(watch)  # it cannot be taken away again, but rests while nothing is watched
    yield os.path.realpath(zoo)
    WATCHED.clear()


def checkpoint_questions(zoo):
    found = find_subjects(zoo)
    for name, ask in tiny_zoo.tiny_asks().items():
        if paths := chosen(name, ask, found):
            yield questions_of(name, ask.options, paths)[0]


def unnamed(question, key):
    """The files that were read while the question was answered, and whose content is no part of the key."""
    READ.clear()
    answer(question, cache=Cache(None))
    folders = {os.path.realpath(folder) for folder in key["weights"]}
    return {file for file in READ if os.path.dirname(file) not in folders and file not in folders}


def test_every_file_of_the_zoo_that_is_read_is_in_the_key(zoo, watching):
    keys = keys_of(checkpoint_questions(zoo))
    assert len(keys) > 10
    WATCHED[:] = [watching]
    for question, key in keys.items():
        assert unnamed(question, key) == set(), question.words
        assert READ, question.words
    symmetry = next(question for question in keys if question.analysis == "label_symmetry")
    alone = {**keys[symmetry], "weights": {symmetry.checkpoint: ""}}
    assert unnamed(symmetry, alone) != set()  # the other seed


def test_two_processes_give_what_one_gives(zoo, tmp_path):
    wanted = asked("copy_heads", "pseudo_counts")
    one = run_plan(wanted, zoo=zoo, cache=tmp_path / "one", jobs=1)
    two = run_plan(wanted, zoo=zoo, cache=tmp_path / "two", jobs=2)
    for name in wanted:
        assert one.tables[name].rows == two.tables[name].rows


def test_a_commands_checkpoints_keep_their_order_in_two_processes(zoo):
    paths = [*reversed([str(one.path) for one in find_subjects(zoo)[:2]]), str(zoo / "none")]
    options = options_of("copy_heads")(batch=16)
    one, two = (cli.run_one("copy_heads", options, paths, engine=Engine(jobs=jobs)) for jobs in (1, 2))
    assert [row["checkpoint"] for row in two.rows] == paths[:2]
    assert (one.rows, one.errors) == (two.rows, two.errors)


def test_checkpoints_that_come_while_it_runs_are_left_for_the_next_run(zoo, tmp_path, monkeypatch):
    module = questions.load_module("optimal")
    whole, calls = module.pieces, []

    def growing(options):
        calls.append(options)
        return whole(options)[: len(calls)]

    monkeypatch.setattr(module, "pieces", growing)
    assert len(whole(asked("optimal")["optimal"].options)) > 1
    found = run_plan(asked("optimal"), zoo=zoo, cache=tmp_path, jobs=1)
    assert len(found.made) == 1
    assert found.tables["optimal"].rows


def test_an_empty_zoo_gives_empty_documents(tmp_path):
    (tmp_path / "zoo").mkdir()
    documents = run_plan(asked("attention", "lag_asymmetry"), zoo=tmp_path / "zoo", cache=tmp_path, jobs=1).tables
    assert [document.rows for document in documents.values()] == [[], []]
