"""What `rlinf doctor` finds, and what it advises."""

import pytest

from rlinf_cli.runs import doctor
from rlinf_cli.runs.doctor import exit_code, memory
from rlinf_cli.runs.installation import Finding, TorchBuild, companions, extras, requirements, torch_build
from rlinf_cli.sandbox.program import Isolation

CPU, CUDA = TorchBuild("2.13.0+cpu", ""), TorchBuild("2.13.0", "13.0")


@pytest.fixture
def vision(site):
    """Installs a torchvision made for a torch, with CUDA or without."""

    def install(torch="2.13.0", cuda=True):
        folder = site.folder / "torchvision"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "_C.so").write_bytes(b"\x7fELF\0libc10.so\0" + b"libtorch_cuda.so\0" * cuda)
        site.metadata("torchvision", "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\nRequires-Dist: numpy\n"
                                     f"Requires-Dist: torch (=={torch})\n", "0.28.0")

    return install


class TestCompanions:
    def test_one_with_cuda_beside_a_torch_without_is_explained(self, vision):
        vision()
        (finding,) = companions(CPU)
        assert (finding.name, finding.state, finding.exit_code) == ("torchvision", "broken", 3)
        assert "operator torchvision::nms does not exist" in finding.text
        assert finding.fix.startswith("pip uninstall torchvision, or pip install torchvision --index-url https://")

    def test_one_for_another_torch_is_too(self, vision):
        vision(torch="2.9.1", cuda=False)
        (finding,) = companions(CPU)
        assert (finding.state, finding.exit_code) == ("broken", 3)
        assert "was built for torch==2.9.1, and torch 2.13.0+cpu is installed" in finding.text

    @pytest.mark.parametrize(("torch", "cuda"), [(CPU, False), (CUDA, True), (CUDA, False)])
    def test_those_that_fit_are_fine(self, vision, torch, cuda):
        vision(cuda=cuda)
        (finding,) = companions(torch)
        assert (finding.state, finding.exit_code) == ("ok", 0)

    def test_those_that_are_not_there_are_not_told_of(self, site):
        assert list(companions(CPU)) == []


def test_the_build_of_torch_is_what_torch_says():
    import torch

    assert torch_build() == TorchBuild(torch.__version__, torch.version.cuda or "")


NEEDS = """Metadata-Version: 2.1
Name: needy
Version: 1.0
Requires-Dist: click<9,>=8.4
Requires-Dist: click<1; python_version < '3'
Requires-Dist: pluggy<0.5
Requires-Dist: no-such-thing>=2
Provides-Extra: good
Requires-Dist: numpy>=1; extra == 'good'
Provides-Extra: bad
Requires-Dist: numpy>=1; extra == 'bad'
Requires-Dist: pluggy<0.5; extra == 'bad'
Requires-Dist: not-there; extra == 'bad'
Provides-Extra: dev
Requires-Dist: not-there; extra == 'dev'
"""


class TestRequirements:
    @pytest.fixture(autouse=True)
    def needy(self, site):
        site.metadata("needy", NEEDS)

    def test_what_is_missing_or_of_another_version_is_broken(self):
        old, missing = requirements("needy")
        assert (old.name, old.state, old.exit_code, old.fix) == ("pluggy", "broken", 3, "pip install 'pluggy<0.5'")
        assert old.text.endswith("is installed; needy needs pluggy<0.5")
        assert missing == Finding("no-such-thing", "broken", "is not installed; needy needs no-such-thing>=2",
                                  "pip install 'no-such-thing>=2'", 3)

    def test_a_missing_extra_is_a_note_with_the_command(self):
        good, bad = extras("needy")
        assert (good.name, good.state) == ("extra good", "ok")
        assert (bad.name, bad.state, bad.fix) == ("extra bad", "note", "pip install 'needy[bad]'")
        assert "pluggy, not-there" in bad.text


def test_this_environment_meets_the_requirements():
    assert list(requirements()) == []


class TestMemory:
    @pytest.fixture
    def meminfo(self, tmp_path):
        (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n")
        return tmp_path / "meminfo"

    def test_without_a_container(self, meminfo, tmp_path):
        assert memory(meminfo, tmp_path / "none") == (1024000, 614400)

    def test_a_container_without_a_limit(self, meminfo, tmp_path):
        (tmp_path / "memory.max").write_text("max\n")
        (tmp_path / "memory.current").write_text("5\n")
        assert memory(meminfo, tmp_path) == (1024000, 614400)

    def test_the_limit_of_a_container(self, meminfo, tmp_path):
        (tmp_path / "memory.max").write_text("500000\n")
        (tmp_path / "memory.current").write_text("100000\n")
        assert memory(meminfo, tmp_path) == (500000, 400000)


class TestMachine:
    def test_little_memory_is_a_note(self, monkeypatch):
        monkeypatch.setattr(doctor, "memory", lambda: (8e9, 1e9))
        (finding,) = doctor._memory()
        assert (finding.state, finding.text) == ("note", "1.0 GB of 8.0 GB free")

    def test_shared_memory_as_containers_have_it_by_default(self, monkeypatch, small_disk):
        monkeypatch.setattr(doctor, "shared_memory_root", lambda: str(small_disk))
        (finding,) = doctor._shared_memory()
        assert finding.state == "note"
        assert "--shm-size" in finding.fix

    def test_a_directory_that_cannot_be_written_to(self, read_only):
        finding = doctor._space("here", read_only, 1e12)
        assert (finding.state, finding.exit_code) == ("broken", 1)
        assert str(read_only) in finding.text

    @pytest.mark.parametrize(("free", "state"), [(1e7, "broken"), (1e9, "note"), (1e11, "ok")])
    def test_room_on_the_disk(self, tmp_path, free, state):
        assert doctor._space("here", tmp_path, free).state == state

    def test_few_open_files(self, monkeypatch):
        monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: (1024, 4096))
        (finding,) = doctor._files()
        assert (finding.state, finding.text, finding.fix) == ("note", "at most 1024", "ulimit -n 4096")

    def test_gpus_that_torch_cannot_use(self, monkeypatch):
        monkeypatch.setattr(doctor, "visible_gpus", lambda: ("0", "1"))
        (finding,) = doctor._devices(CPU)
        assert finding.state == "note"
        assert "2 GPUs, which torch 2.13.0+cpu cannot use" in finding.text
        (finding,) = doctor._devices(CUDA)
        assert finding.state == "ok"


@pytest.mark.parametrize(("isolation", "state"), [(Isolation(True), "ok"), (Isolation(False, "operation not permitted"), "note")])
def test_what_the_system_allows_for_programs_of_a_model(monkeypatch, isolation, state):
    monkeypatch.setattr(doctor, "isolation", lambda: isolation)
    finding = doctor._sandbox()
    assert finding.state == state
    assert isolation.reason in finding.text


def test_models_that_cannot_be_imported(site, monkeypatch):
    (site.folder / "transformers.py").write_text("raise ImportError('operator torchvision::nms does not exist')\n")
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    finding = doctor._imports()
    assert (finding.state, finding.exit_code) == ("broken", 3)
    assert finding.text.endswith("ImportError: operator torchvision::nms does not exist")


@pytest.mark.parametrize(("codes", "code"), [([], 0), ([1], 1), ([1, 3, 1], 3)])
def test_the_exit_code_is_that_of_the_gravest(codes, code):
    found = [Finding("a", "note", ""), *[Finding("b", "broken", "", exit_code=one) for one in codes]]
    assert exit_code(found) == code
