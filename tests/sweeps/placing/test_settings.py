"""Table [ray] and its options: defaults, what is refused."""

import sys

import pytest

import ppax
from ppax.cli import main, sweep
from ppax.devices import clusters
from ppax.sweeps.placing import settings
from ppax.sweeps.placing.driver import Places
from ppax.sweeps.placing.settings import Cluster

FILE = """
env = "CartPole-v1"
[sweep]
seeds = 2
[ray]
cpus = 2
"""


def test_an_address_stands_for_a_table():
    assert settings.read(None) is None
    assert settings.read("auto") == settings.read({}) == Cluster("auto", 1, 0, 3)
    assert settings.read({"address": "head:6379", "gpus": 1}) == Cluster("head:6379", 1, 1, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cpu": 1}, r"unknown option 'ray.cpu'; did you mean ray.cpus\?"),
        ({"cpus": 0}, "ray.cpus = 0: must be at least 1; nearest valid value: 1"),
        ({"gpus": 0.5}, "ray.gpus = 0.5: must be of type int"),
        ({"retries": -1}, "ray.retries = -1: must be at least 0"),
        (3, r"ray = 3: must be an address, as 'auto', or a table, \[ray\]"),
    ],
)
def test_what_is_no_table_of_a_cluster_is_refused(given, text):
    with pytest.raises(ppax.ConfigError, match=text):
        settings.read(given)


def test_options_of_the_command_line_have_priority_over_the_table(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(FILE)
    options, run_config, table = sweep.parse_sweep([str(path)])
    assert options.cluster == Cluster("auto", 2, 0, 3)
    assert "ray" not in run_config
    assert table == {"seeds": 2}
    options, _, _ = sweep.parse_sweep([str(path), "--ray", "head:6379", "--ray.cpus", "4", "--ray.retries=0"])
    assert options.cluster == Cluster("head:6379", 4, 0, 0)
    path.write_text(FILE.partition("[ray]")[0])
    assert sweep.parse_sweep([str(path)])[0].cluster is None


def test_a_search_within_programs_is_refused_before_anything_is_written(tmp_path):
    values = {"agent.learning_rate": [1e-3, 1e-2, 1e-1, 1.0]}
    with pytest.raises(ppax.ConfigError, match=r"search.part = 'pbt': .* take halving, .* or leave out --ray"):
        ppax.sweep_runs({"env": "CartPole-v1"}, values, search={"part": "pbt"}, ray="auto", run_dir=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_one_run_is_no_sweep(tmp_path, capsys):
    assert main.main(["resume", str(tmp_path), "--ray", "auto"]) == 2
    assert "is not a sweep directory" in capsys.readouterr().err


def test_the_extra_is_named_where_ray_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ppax.ConfigError, match=r'pip install "ppax\[ray\]"'), clusters.connected():
        pass


def test_a_sweep_without_ray_leaves_no_directory(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    base = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 8, "total_steps": 32}
    with pytest.raises(ppax.ConfigError, match=r'pip install "ppax\[ray\]"'):
        ppax.sweep_runs(base, {"agent.gamma": [0.9, 0.99]}, ray="auto", run_dir=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


class Machines:
    def __init__(self, *resources):
        self.resources = resources

    def nodes(self):
        return [{"Alive": True, "Resources": has} for has in self.resources]


def test_places_of_machines_of_several_sizes():
    machines = Machines({"CPU": 8.0, "GPU": 1.0}, {"CPU": 4.0}, {"memory": 1.0})
    assert Places(machines, Cluster("auto", 3, 0, 3)).room() == (3, 2)
    assert Places(machines, Cluster("auto", 3, 1, 3)).room() == (1, 1)
    with pytest.raises(ppax.ConfigError, match=r"ray.cpus = 16, ray.gpus = 2: no machine .*ray.cpus = 8, ray.gpus = 1"):
        Places(machines, Cluster("auto", 16, 2, 3))
