"""What an evaluation asks, and what it makes of the answers."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.data import evaluation_sources
from rlinf_cli.runs.evaluation import evaluation_on, task_names
from rlinf_cli.runs.metrics import MetricsWriter, describe


@pytest.fixture(scope="session")
def plugins():
    return load_plugins(third_party=False)


@pytest.fixture
def data(tmp_path):
    """A file of ten rows."""
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n} + 1 =", "answer": n + 1, "level": n}) + "\n" for n in range(10)))
    return path


@pytest.fixture
def evaluation(plugins):
    """`evaluation("eval.k=2", ...)`: as the configuration says."""

    def make(*overrides):
        config = resolve([], list(overrides), {}, plugins)
        return evaluation_on(evaluation_sources(config, plugins), config, workflow=None)

    return make


@pytest.fixture
def answered(sample):
    """Scored groups for the prompts of an evaluation; `rewards`: those of each group."""

    def answer(evaluation, rewards, version=3, **fields):
        groups = []
        for prompt, row in zip(evaluation.prompts(), rewards, strict=True):
            versions = np.full(3, version, np.int32)
            groups.append([sample(id=f"{prompt.id}/{number:04d}", group_id=prompt.id, reward=reward, versions=versions, **fields)
                           for number, reward in enumerate(row)])
        return groups

    return answer


class TestPrompts:
    def test_are_the_first_rows_of_a_file_and_named_after_them(self, evaluation, data):
        prompts = evaluation(f"eval.data={data}", "eval.prompts=3").prompts()
        assert [prompt.id for prompt in prompts] == ["eval-sums-0", "eval-sums-1", "eval-sums-2"]
        assert [(prompt.text, prompt.answer, prompt.columns) for prompt in prompts[:2]] == [
            ("0 + 1 =", "1", {"level": 0}), ("1 + 1 =", "2", {"level": 1})]
        assert all(prompt.evaluation for prompt in prompts)

    @pytest.mark.parametrize(("asked", "count"), [(0, 10), (128, 10), (1, 1)])
    def test_are_not_more_than_there_are(self, evaluation, data, asked, count):
        assert len(evaluation(f"eval.data={data}", f"eval.prompts={asked}").prompts()) == count

    def test_are_training_rows_where_nothing_else_is_named(self, evaluation, data):
        prompts = evaluation(f"data.name={data}", "eval.prompts=2").prompts()
        assert [prompt.text for prompt in prompts] == ["0 + 1 =", "1 + 1 ="]

    def test_keep_the_number_of_their_row_when_others_are_left_out(self, evaluation, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=3")
        source = replace(made.tasks[0].source, kept=[1, 4, 5, 7])
        kept = evaluation_on([source], made.config, None)
        assert [prompt.id for prompt in kept.prompts()] == ["eval-sums-1", "eval-sums-4", "eval-sums-5"]

    def test_of_a_generator_are_fresh(self, evaluation, plugins):
        config = resolve([], ["data.name=digits", "data.length=8"], {}, plugins)
        from rlinf_cli.runs.data import training_sources

        (source,) = training_sources(config, plugins, supervised=False)
        trained = {source.row(index).text for index in range(200)}
        asked = {prompt.text for prompt in evaluation("data.name=digits", "data.length=8", "eval.prompts=200").prompts()}
        assert len(asked) == 200
        assert not asked & trained

    def test_depend_on_the_seed_only_where_they_are_made_up(self, evaluation, data):
        def texts(*words):
            return [prompt.text for prompt in evaluation(*words).prompts()]

        assert texts("data.name=digits", "seed=1") != texts("data.name=digits", "seed=2")
        assert texts(f"data.name={data}", "seed=1") == texts(f"data.name={data}", "seed=2")

    def test_all_of_what_has_no_end_cannot_be_asked(self, evaluation):
        with pytest.raises(UsageError, match=r"eval\.prompts=0 takes all rows, but digits has no end"):
            evaluation("data.name=digits", "eval.prompts=0")


@pytest.mark.parametrize(("data", "names"), [
    (["a/train.jsonl"], ["train"]),
    (["openai/gsm8k:main"], ["gsm8k-main"]),
    (["x/a.jsonl", "y/a.parquet", "a.ndjson"], ["a", "a-2", "a-3"]),
    (["größe 7.jsonl"], ["gr-e-7"]),
    (["digits", "saved/"], ["digits", "saved"]),
])
def test_tasks_have_the_names_of_their_data(data, names):
    assert task_names(data) == names


class TestResults:
    def test_count_successes_of_each_prompt(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=3", "eval.k=2")
        (result,) = made.results(answered(made, [[1, 0], [1, 1], [0, 0.9]]), 3)
        assert (result.task, result.successes, result.trials) == ("sums", (1, 2, 0), 6)
        metrics = result.metrics()
        assert metrics["eval/sums/mean@2"] == 0.5
        assert metrics["eval/sums/pass@2"] == pytest.approx(2 / 3)
        assert metrics["eval/sums/successes"] == 3
        assert metrics["eval/sums/trials"] == 6
        assert metrics["eval/sums/reward/mean"] == pytest.approx(3.9 / 6)

    def test_do_not_depend_on_the_order_of_groups_and_samples(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=4", "eval.k=2")
        groups = answered(made, [[1, 0], [1, 1], [0, 0], [0, 1]])
        mixed = [groups[i][::-1] for i in (2, 0, 3, 1)]
        (one,), (other,) = made.results(groups, 3), made.results(mixed, 3)
        assert one.metrics() == other.metrics()
        assert [sample.id for sample in one.samples] == [sample.id for sample in other.samples]

    def test_a_sum_of_weights_may_miss_the_limit_by_rounding(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=2")
        assert 0.7 + 0.2 + 0.1 < 1
        (result,) = made.results(answered(made, [[0.7 + 0.2 + 0.1], [0.999]]), 3)
        assert result.successes == (1, 0)

    def test_success_is_what_is_said_to_be(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=2", "eval.success=0.5")
        (result,) = made.results(answered(made, [[0.5], [0.4]]), 3)
        assert result.successes == (1, 0)

    def test_a_sample_without_a_reward_counts_as_no_success_and_is_told(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=2")
        groups = answered(made, [[1], [float("nan")]])
        groups[1][0].error = "ValueError: no"
        (result,) = made.results(groups, 3)
        assert (result.successes, result.errors) == ((1, 0), 1)
        assert result.metrics()["eval/sums/reward/mean"] == 1

    def test_no_reward_at_all_is_an_error_with_the_reason(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=2")
        groups = answered(made, [[float("nan")], [float("nan")]], error="ValueError: no such unit")
        with pytest.raises(RunError, match=r"no answer to sums has a reward: all 2 failed, the first with ValueError: no such"):
            made.results(groups, 3)

    def test_are_of_one_version_of_the_weights(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=2")
        groups = answered(made, [[1], [1]])
        groups[1][0].versions[2] = 4
        with pytest.raises(RunError, match="evaluation after step 3 was answered by weights of version 3 and 4"):
            made.results(groups, 3)

    def test_are_of_the_weights_after_the_step(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=1")
        with pytest.raises(RunError, match="evaluation after step 4 was answered by weights of version 3"):
            made.results(answered(made, [[1]]), 4)

    def test_lengths_and_what_was_cut_off(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data}", "eval.prompts=2")
        groups = answered(made, [[1], [1]])
        groups[0][0].finish, groups[0][0].response_ids = "length", np.arange(5, dtype=np.int32)
        (result,) = made.results(groups, 3)
        assert (result.mean_length, result.truncated) == (4, 0.5)

    def test_each_data_set_has_metrics_of_its_own(self, evaluation, answered, data):
        made = evaluation(f"eval.data={data} + digits", "eval.prompts=2")
        results = made.results(answered(made, [[1], [1], [0], [1]]), 3)
        assert [(result.task, result.successes) for result in results] == [("sums", (1, 1)), ("digits", (0, 1))]

    def test_metrics_can_be_written_and_are_documented(self, evaluation, answered, data, tmp_path):
        made = evaluation(f"eval.data={data}", "eval.prompts=1", "eval.k=4")
        (result,) = made.results(answered(made, [[1, 0, 0, 0]]), 3)
        with MetricsWriter(tmp_path / "metrics.jsonl", 0) as writer:
            writer.write(0, result.metrics())
        assert all(describe(name) is not None for name in result.metrics())


@pytest.mark.parametrize(("every", "steps", "due"), [(0, 6, []), (4, 6, [0, 4, 6]), (3, 6, [0, 3, 6]), (10, 6, [0, 6])])
def test_before_the_first_step_every_so_many_and_after_the_last(evaluation, every, steps, due):
    made = evaluation(f"eval.every={every}", f"steps={steps}")
    assert [step for step in range(steps + 1) if made.is_due(step)] == due
