"""What went wrong is written down at once, whoever saw it."""

import json
import threading

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.flow.incident import Incident
from rlinf_cli.runs.incidents import Incidents, read_incidents

DIED = Incident(1796000000.5, "rollout", 1, "node-0", "rollout[1] on node-0 died (signal 9) while in generate", "restarted",
                "weights v17", 1.94)
STALLED = Incident(1796000100.0, "", -1, "", "nothing has happened for 300 s", "stalled", "their stacks in logs/attempt_1")


class Shown:
    def __init__(self):
        self.lines = []

    def message(self, label, text):
        self.lines.append((label, text))


@pytest.fixture
def incidents(tmp_path):
    """`incidents()`: of one attempt; `shown` has what the user sees."""

    def open_():
        made = Incidents(tmp_path / "incidents.jsonl", Shown(), lambda: 17)
        made.shown = made._progress.lines
        return made

    return open_


def test_a_run_without_incidents_has_no_file_and_no_metric(incidents, tmp_path):
    assert incidents().metrics() == {}
    assert list(tmp_path.iterdir()) == []
    assert read_incidents(tmp_path / "incidents.jsonl") == []


def test_an_incident_is_written_shown_and_counted(incidents, tmp_path):
    made = incidents()
    made.add(DIED)
    made.add(STALLED)
    assert made.metrics() == {"progress/restarts": 1.0}
    assert made.shown[0] == ("incident", "after step 17: rollout[1] on node-0 died (signal 9) while in generate: restarted with "
                                         "weights v17 in 1.9 s")
    first, second = read_incidents(tmp_path / "incidents.jsonl")
    assert first == {"step": 17, "time": 1796000000.5, "role": "rollout", "rank": 1, "node": "node-0", "what": DIED.what,
                     "action": "restarted", "detail": "weights v17", "seconds": 1.94}
    assert second["action"] == "stalled"


def test_the_count_goes_on_in_the_next_attempt(incidents):
    incidents().add(DIED)
    again = incidents()
    assert again.metrics() == {"progress/restarts": 1.0}
    again.add(Incident(0.0, "actor", 0, "node-0", "actor[0] on node-0 died", "recovered"))
    assert again.metrics() == {"progress/restarts": 2.0}


def test_a_torn_line_is_left_out(incidents, tmp_path):
    incidents().add(DIED)
    path = tmp_path / "incidents.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole[:40])
    assert [line["rank"] for line in read_incidents(path)] == [1]


def test_threads_do_not_mix_their_lines(incidents, tmp_path):
    made = incidents()
    threads = [threading.Thread(target=lambda: [made.add(DIED) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / "incidents.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 80 == made.metrics()["progress/restarts"]


def test_a_disk_that_refuses_is_an_error_in_a_sentence(tmp_path):
    made = Incidents(tmp_path / "missing" / "incidents.jsonl", Shown(), lambda: 0)
    with pytest.raises(RunError, match=r"cannot write .*incidents\.jsonl: no such file"):
        made.add(DIED)
