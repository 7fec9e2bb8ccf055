"""Checkpoints: bit-exact, complete or absent, never executed; damaged and hostile files are refused."""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.cli.main import main
from ppax.networks import mlp
from ppax.run import checkpoint
from ppax.run.checkpoint import CheckpointError
from ppax.storage.manifest import FORMAT

NUM_STEPS = 8
STATE, MANIFEST = "state.safetensors", "manifest.json"


KINDS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


def shape_of(hidden=(8, 8), num_envs=4, num_steps=NUM_STEPS, normalize=True, impl="threefry2x32"):
    """Shapes of a TrainState, without computation."""
    env = ppax.make("CartPole-v1", num_envs)
    agent = ppax.PPO(mlp(env, hidden), normalize_obs=normalize, normalize_reward=normalize)
    return jax.eval_shape(lambda: ppax.start(agent, env, num_steps, jax.random.key(0, impl=impl)))


def scrambled(like, iteration=1, seed=0):
    """State with random bits in every leaf, NaN payloads included: only an exact copy is equal."""
    rng = np.random.default_rng(seed)

    def fill(x):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = jax.eval_shape(jax.random.key_data, x)
            bits = jnp.asarray(rng.integers(0, 2**32, data.shape, np.uint32))
            return jax.random.wrap_key_data(bits, impl=KINDS[str(x.dtype)])
        if x.dtype == bool:
            return jnp.asarray(rng.integers(0, 2, x.shape).astype(bool))
        return jnp.asarray(np.frombuffer(rng.bytes(x.size * x.dtype.itemsize), x.dtype).reshape(x.shape))

    return dataclasses.replace(jax.tree.map(fill, like), iteration=jnp.int32(iteration))


def bits(leaf):
    data = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return leaf.dtype, leaf.shape, np.asarray(data).tobytes()


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        assert bits(x) == bits(y), jax.tree_util.keystr(path)
        assert not getattr(y, "weak_type", False), jax.tree_util.keystr(path)


@pytest.fixture(scope="module")
def like():
    return shape_of()


@pytest.fixture(scope="module")
def state(like):
    return scrambled(like)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "checkpoints"


# ---------------------------------------------------------------- round trip


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_saved_state_is_loaded_bit_for_bit(folder, impl, normalize):
    like = shape_of(normalize=normalize, impl=impl)
    state = scrambled(like)
    path = checkpoint.save(folder, state)
    found, skipped = checkpoint.newest_valid(folder)
    assert (found, skipped) == (path, [])
    assert_same(state, checkpoint.load(path, like))
    assert_same(state, checkpoint.load(path, state))  # `like` may be arrays or shapes


def test_the_state_of_start_is_loaded_bit_for_bit(folder):
    env = ppax.make("Pendulum-v1", 2)
    agent = ppax.PPO(mlp(env, (4,)), normalize_obs=True, normalize_reward=True)
    state = jax.jit(functools.partial(ppax.start, agent, env, NUM_STEPS))(jax.random.key(7))
    assert_same(state, checkpoint.load(checkpoint.save(folder, state), state))


def test_the_same_state_is_saved_as_the_same_bytes(folder, tmp_path, state):
    one = checkpoint.save(folder, state)
    other = checkpoint.save(tmp_path / "other", state)
    assert (one / STATE).read_bytes() == (other / STATE).read_bytes()


def test_keys_of_another_implementation_are_refused(folder):
    path = checkpoint.save(folder, scrambled(shape_of(impl="rbg")))
    with pytest.raises(CheckpointError, match="key"):
        checkpoint.load(path, shape_of(impl="unsafe_rbg"))
    with pytest.raises(CheckpointError, match="key"):
        checkpoint.load(path, shape_of(impl="threefry2x32"))


def test_the_newest_three_are_kept(folder, like):
    for iteration in (5, 6, 100, 99_999, 1_000_000):
        checkpoint.save(folder, scrambled(like, iteration))
    names = [p.name for p in checkpoint.list_checkpoints(folder)]
    assert [int(name) for name in names] == [100, 99_999, 1_000_000]
    assert sorted(os.listdir(folder)) == names
    checkpoint.save(folder, scrambled(like, 1_000_001), keep=1)
    assert [int(p.name) for p in checkpoint.list_checkpoints(folder)] == [1_000_001]


def test_a_missing_directory_has_no_checkpoints(folder):
    assert checkpoint.list_checkpoints(folder) == []
    assert checkpoint.newest_valid(folder) == (None, [])


# ---------------------------------------------------------------- atomic


def failing(monkeypatch, name, call):
    """Let the `call`-th call of `os.<name>` fail; return the list of calls."""
    original, uses = getattr(os, name), []

    def function(*arguments, **keywords):
        uses.append(arguments)
        if len(uses) == call:
            raise OSError(28, "No space left on device")
        return original(*arguments, **keywords)

    monkeypatch.setattr(os, name, function)
    return uses


STAGES = [("mkdir", 2), *(("fsync", call) for call in range(1, 5)), ("replace", 1)]


@pytest.mark.parametrize(("name", "call"), STAGES)
def test_a_failed_save_leaves_the_earlier_checkpoint(folder, like, monkeypatch, name, call):
    first, second = scrambled(like, 1), scrambled(like, 2, seed=1)
    checkpoint.save(folder, first)
    with monkeypatch.context() as patch:
        uses = failing(patch, name, call)
        with pytest.raises(OSError, match="No space"):
            checkpoint.save(folder, second)
        assert len(uses) == call, "the stage was never reached"
    path, skipped = checkpoint.newest_valid(folder)
    assert skipped == []
    assert_same({1: first, 2: second}[int(path.name)], checkpoint.load(path, like))
    assert [p for p in os.listdir(folder) if p.startswith(".tmp")] == []
    checkpoint.save(folder, second)
    path, _ = checkpoint.newest_valid(folder)
    assert_same(second, checkpoint.load(path, like))


AGAIN = [
    *(("fsync", call) for call in range(1, 5)),
    ("replace", 1),
]


@pytest.mark.parametrize(("name", "call"), AGAIN)
def test_saving_an_iteration_again_never_loses_its_checkpoint(folder, like, monkeypatch, name, call):
    """The end of a run may save an iteration twice; a kill during the second save must leave the first."""
    state = scrambled(like, 1)
    checkpoint.save(folder, state)
    with monkeypatch.context() as patch:
        failing(patch, name, call)
        with contextlib.suppress(OSError):
            checkpoint.save(folder, state)
    path, _ = checkpoint.newest_valid(folder)
    assert path is not None
    assert_same(state, checkpoint.load(path, like))


SAVER = """
import os, random, signal, sys, time
from pathlib import Path
import jax, numpy as np
from ppax.run import checkpoint
from ppax.core.types import ActorState, LearnerState, TrainState

def state(n):
    big = np.full((64, 1024), n, np.float32)
    learner = LearnerState({"w": big, "b": big + 0}, None, None, None)
    return TrainState(learner, (), np.zeros(2, np.uint32), np.int32(n), np.array([n, 0], np.uint32), num_steps=8)

folder, n = Path(sys.argv[1]), 0
begin = time.perf_counter()
for n in range(1, 4):
    checkpoint.save(folder.parent / "probe", state(n))
unit = max(0.01, time.perf_counter() - begin)  # a busy machine takes longer for a save
for line in sys.stdin:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        n = max([int(p.name) for p in checkpoint.list_checkpoints(folder)], default=0)
        os.write(told, b"x")
        while True:
            n += 1
            checkpoint.save(folder, state(n))
    os.read(ready, 1)
    time.sleep(float(line) * unit)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print("killed", flush=True)
"""


def test_a_writer_that_is_killed_leaves_a_complete_checkpoint(folder):
    """SIGKILL at random moments: the newest checkpoint is always complete, and its leaves are of one iteration."""
    moments = random.Random(0)
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", SAVER, str(folder)]
    reached, leftovers = [0], 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as saver:
        for _ in range(30):
            saver.stdin.write(f"{moments.uniform(0.0, 2.0)}\n")
            saver.stdin.flush()
            assert saver.stdout.readline() == "killed\n"
            partial = [p for p in os.listdir(folder) if p.startswith(".tmp")]
            leftovers += len(partial)
            assert len(partial) <= 1
            path, skipped = checkpoint.newest_valid(folder)
            if path is None:
                assert reached == [0]
                continue
            assert skipped == []
            assert int(path.name) >= reached[-1]
            reached.append(int(path.name))
            loaded = checkpoint.load(path, saved_by_saver(reached[-1]))
            assert_same(saved_by_saver(reached[-1]), loaded)
        saver.stdin.close()
    assert reached[-1] > 3, "too few checkpoints were saved"
    assert leftovers > 0, "no kill interrupted a save: the test shows nothing"
    checkpoint.save(folder, saved_by_saver(reached[-1] + 1))
    assert [p for p in os.listdir(folder) if p.startswith(".tmp")] == []
    assert len(os.listdir(folder)) == 3


def saved_by_saver(n):
    big = jnp.full((64, 1024), n, jnp.float32)
    learner = ppax.core.types.LearnerState({"w": big, "b": big}, None, None, None)
    steps = jnp.array([n, 0], jnp.uint32)
    return ppax.TrainState(learner, (), jnp.zeros(2, jnp.uint32), jnp.int32(n), steps, num_steps=8)


# ---------------------------------------------------------------- damage


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


DAMAGE = {
    "flipped": (STATE, flip),
    "truncated": (STATE, truncate),
    "emptied": (STATE, lambda path: os.truncate(path, 0)),
    "longer": (STATE, lambda path: path.write_bytes(path.read_bytes() + b"x")),
    "missing": (STATE, Path.unlink),
    "folder": (STATE, replace_by_folder),
    "manifest missing": (MANIFEST, Path.unlink),
    "manifest truncated": (MANIFEST, truncate),
    "manifest emptied": (MANIFEST, lambda path: os.truncate(path, 0)),
    "manifest folder": (MANIFEST, replace_by_folder),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_skipped(folder, like, damage):
    first = scrambled(like, 1)
    before = checkpoint.save(folder, first)
    path = checkpoint.save(folder, scrambled(like, 2))
    name, harm = DAMAGE[damage]
    harm(path / name)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path, like)
    assert str(path / name) in str(caught.value)
    found, skipped = checkpoint.newest_valid(folder)
    assert found == before
    assert len(skipped) == 1
    assert str(path / name) in skipped[0]
    assert_same(first, checkpoint.load(found, like))


def test_without_a_valid_checkpoint_none_is_found(folder, like):
    for iteration in (1, 2):
        flip(checkpoint.save(folder, scrambled(like, iteration)) / STATE)
    found, skipped = checkpoint.newest_valid(folder)
    assert found is None
    assert len(skipped) == 2


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"hidden": (8, 9)}, "learner.params"),
        ({"hidden": (8,)}, "not expected"),
        ({"hidden": (8, 8, 8)}, "not in the checkpoint"),
        ({"num_envs": 5}, "actor.obs"),
        ({"num_steps": 16}, "num_steps: saved 8, expected 16"),
        ({"normalize": False}, "learner.obs_stats"),
    ],
)
def test_another_structure_is_refused_with_the_names_of_the_leaves(folder, state, changed, named):
    path = checkpoint.save(folder, state)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path, shape_of(**changed))
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_another_dtype_is_refused(folder, like, state):
    path = checkpoint.save(folder, state)
    wanted = dataclasses.replace(like, iteration=jax.ShapeDtypeStruct((), jnp.uint32))
    with pytest.raises(CheckpointError, match=r"iteration: saved int32.*expected uint32"):
        checkpoint.load(path, wanted)


def test_every_bit_of_a_manifest_is_checked(folder, like, state):
    """A flipped bit is detected, or does not change the parsed manifest."""
    notes = {"metric": "loss", "mode": "min", "row": {"iteration": 1, "loss": 0.5}}
    path = checkpoint.save(folder, state, notes=notes, origin={"run": "abc", "devices": 2})
    data, right = (path / MANIFEST).read_bytes(), checkpoint.read_manifest(path)
    noticed = 0
    for bit in range(8 * len(data)):
        harmed = bytearray(data)
        harmed[bit // 8] ^= 1 << bit % 8
        (path / MANIFEST).write_bytes(harmed)
        try:
            found = checkpoint.read_manifest(path)
        except CheckpointError:
            noticed += 1
        else:
            assert found == right
    assert noticed > 0.5 * 8 * len(data)


def test_a_checkpoint_of_another_iteration_than_its_name_is_refused(folder, like, state):
    path = checkpoint.save(folder, state)
    os.rename(path, folder / "0000000030")
    with pytest.raises(CheckpointError, match="iteration 1"):
        checkpoint.load(folder / "0000000030", like)
    assert checkpoint.newest_valid(folder)[0] is None
    # also if the manifest was forged to fit
    manifest = json.loads((folder / "0000000030" / MANIFEST).read_text())
    reseal(folder / "0000000030", manifest | {"iteration": 30})
    with pytest.raises(CheckpointError, match="iteration 1, not"):
        checkpoint.load(folder / "0000000030", like)


def test_a_checkpoint_of_another_run_is_refused(folder, like, state):
    path = checkpoint.save(folder, state, origin={"run": "theirs"})
    with pytest.raises(CheckpointError, match=r"another run \('theirs'\), not of this one \('mine'\)"):
        checkpoint.load(path, like, "mine")
    assert_same(state, checkpoint.load(path, like, "theirs"))
    assert_same(state, checkpoint.load(path, like))


def test_a_checkpoint_removed_while_it_is_read_is_read_completely(folder, like, state, monkeypatch):
    """`evaluate` reads beside a run that saves: files that are open stay readable."""
    path, opened = checkpoint.save(folder, state), []
    original = checkpoint.open_regular

    def open_and_lose(file):
        opened.append(original(file))
        if len(opened) == 2:
            shutil.rmtree(path)
        return opened[-1]

    monkeypatch.setattr(checkpoint, "open_regular", open_and_lose)
    assert_same(state, checkpoint.load(path, like))
    assert not path.exists()


def test_a_checkpoint_removed_before_it_is_read_makes_the_search_begin_again(folder, like):
    first, second = scrambled(like, 1), scrambled(like, 2)
    checkpoint.save(folder, first, keep=1)
    tried = []

    def read(path):
        tried.append(path.name)
        if len(tried) == 1:
            checkpoint.save(folder, second, keep=1)  # removes the first
        return checkpoint.load(path, like)

    found, skipped = checkpoint.newest(folder, read)
    assert (tried, skipped) == (["0000000001", "0000000002"], [])
    assert_same(second, found)


def test_a_checkpoint_is_removed_at_once(folder, like, monkeypatch):
    """A process that reads meanwhile finds the next one, and none without its files."""
    checkpoint.save(folder, scrambled(like, 1), keep=1)
    seen, original = [], shutil.rmtree

    def halfway(path, **options):
        for file in path.iterdir():
            file.unlink()
        seen.append(checkpoint.newest(folder, lambda one: checkpoint.load(one, like) and one.name))
        original(path, **options)

    monkeypatch.setattr(shutil, "rmtree", halfway)
    checkpoint.save(folder, scrambled(like, 2), keep=1)
    assert seen == [("0000000002", [])]
    assert [one.name for one in folder.iterdir()] == ["0000000002"]


def test_a_checkpoint_that_cannot_be_renamed_is_removed_all_the_same(folder, like, monkeypatch):
    """As on Windows, while another process reads it."""
    path = checkpoint.save(folder, scrambled(like, 1))

    def refuse(*_):
        raise PermissionError("in use")

    monkeypatch.setattr(os, "replace", refuse)
    checkpoint.remove(path)
    assert not path.exists()


# ---------------------------------------------------------------- hostile files


def forge(folder, data=b"", **manifest):
    """Write a checkpoint of any bytes with a manifest that fits them."""
    path = folder / "0000000009"
    path.mkdir(parents=True)
    (path / STATE).write_bytes(data)
    whole = {"format": FORMAT, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "num_steps": NUM_STEPS}
    whole |= {"iteration": 9, "origin": {}, "notes": {}, "keys": {"key": "threefry2x32"}}
    return reseal(path, whole | manifest)


def reseal(path, manifest):
    """Write a manifest with its valid checksum, as an attacker could."""
    manifest = {name: value for name, value in manifest.items() if name != "checksum"}
    checksum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / MANIFEST).write_text(json.dumps(manifest | {"checksum": checksum}))
    return path


def tensors(header, data=b"\0" * 64):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Bomb:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def tensor(kind="F32", shape=(16,), offsets=(0, 64)):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "pickle": lambda mark: pickle.dumps(Bomb(f"touch {mark}")),
    "pickled header": lambda mark: tensors(pickle.dumps(Bomb(f"touch {mark}"))),
    "nothing": lambda mark: b"",
    "short": lambda mark: b"\x08\0\0",
    "giant header": lambda mark: struct.pack("<Q", 2**63) + b"{}",
    "header beyond the file": lambda mark: struct.pack("<Q", 90_000_000) + b"{}",
    "huge tensor": lambda mark: tensors({"x": tensor(shape=(2**40,), offsets=(0, 2**42))}),
    "overflowing shape": lambda mark: tensors({"x": tensor(shape=(2**62, 2**62), offsets=(0, 64))}),
    "shape against offsets": lambda mark: tensors({"x": tensor(shape=(17,))}),
    "overlap": lambda mark: tensors({"x": tensor(), "y": tensor()}),
    "negative": lambda mark: tensors({"x": tensor(shape=(-16,))}),
    "unknown type": lambda mark: tensors({"x": tensor("F99")}),
    "type that NumPy lacks": lambda mark: tensors({"x": tensor("BF16", (32,))}),
    "8-bit type": lambda mark: tensors({"x": tensor("F8_E4M3", (64,))}),
    "object type": lambda mark: tensors({"x": tensor("O")}),
    "NaN header": lambda mark: tensors(b'{"x": NaN}'),
    "deep header": lambda mark: tensors(b'{"x":' + b"[" * 200_000),
    "list header": lambda mark: tensors(b"[1, 2]"),
    "not UTF-8": lambda mark: tensors(b'{"\xff\xfe": 1}'),
    "outside names": lambda mark: tensors(
        {"../../outside": tensor(), "/outside": tensor(offsets=(64, 128))}, b"\0" * 128
    ),
    "metadata": lambda mark: tensors({"__metadata__": {"key": "../../outside"}, "x": tensor()}),
}


LACKING = ("type that NumPy lacks", "8-bit type")


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_hostile_states_are_refused_without_effect(tmp_path, like, kind):
    mark = tmp_path / "executed"
    path = forge(tmp_path / "run", HOSTILE[kind](mark))
    before = sorted(tmp_path.rglob("*"))
    begin = time.monotonic()
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path, like)
    assert time.monotonic() - begin < 5.0
    assert len(str(caught.value)) < 20_000
    assert sorted(tmp_path.rglob("*")) == before
    assert not mark.exists()


MANIFESTS = {
    "deep": "[" * 1_000_000,
    "deep object": '{"a":' * 500_000,
    "NaN": "NaN",
    "null": "null",
    "list": "[]",
    "number": "7",
    "string": '"x"',
    "binary": b"\xff\xfe\x00\x80",
    "no bytes": '{"format": 1}',
    "bytes NaN": '{"format": 1, "bytes": NaN}',
    "bytes infinite": '{"format": 1, "bytes": 1e999}',
    "bytes negative": '{"format": 1, "bytes": -1}',
    "bytes endless": '{"format": 1, "bytes": ' + "9" * 100_000 + "}",
    "bytes text": '{"format": 1, "bytes": "12"}',
    "bytes true": '{"format": 1, "bytes": true}',
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_hostile_manifests_are_refused(folder, like, state, kind):
    path, text = checkpoint.save(folder, state), MANIFESTS[kind]
    (path / MANIFEST).write_bytes(text if isinstance(text, bytes) else text.encode())
    begin = time.monotonic()
    with pytest.raises(CheckpointError, match=r"manifest|state"):
        checkpoint.load(path, like)
    assert checkpoint.newest_valid(folder)[0] is None
    assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize(
    "change",
    [
        {"format": FORMAT + 1},
        {"format": FORMAT - 1},
        {"format": 1},
        {"format": None},
        {"sha256": None},
        {"sha256": 0},
        {"sha256": "0" * 64},
        {"num_steps": None},
        {"num_steps": "8"},
        {"keys": None},
        {"keys": {}},
        {"keys": []},
        {"keys": "key"},
        {"keys": {"key": "no such kind"}},
        {"keys": {"key": None}},
        {"keys": {"key": ["threefry2x32"]}},
        {"iteration": -5},
        {"iteration": 2},
        {"iteration": "1"},
        {"origin": None},
        {"notes": []},
    ],
    ids=str,
)
def test_wrong_manifest_entries_are_refused(folder, like, state, change):
    path = checkpoint.save(folder, state)
    manifest = json.loads((path / MANIFEST).read_text())
    reseal(path, manifest | change)
    with pytest.raises(CheckpointError):
        checkpoint.load(path, like)


def test_a_run_of_another_format_is_refused_in_one_sentence(tmp_path, capsys):
    """Before its run file, whose options may be no more; nothing older is taken in its place, nothing is written."""
    run_dir = tmp_path / "run"
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1)
    log = ppax.Log(every=1, checkpoint_every=1, console=False)
    ppax.fit(agent, env, 64, num_steps=8, run_dir=run_dir, log=log)
    path = checkpoint.list_checkpoints(run_dir / "checkpoints")[-1]
    reseal(path, json.loads((path / MANIFEST).read_text()) | {"format": FORMAT - 1})
    file = run_dir / "run.toml"
    file.write_text(file.read_text() + "\n[agent.kl]\ntarget_kl = 0.1\n")
    before = {one: one.read_bytes() for one in run_dir.rglob("*") if one.is_file()}
    sentence = r"manifest\.json has format 2, and this ppax reads format 3: .* the version .* saved it, or train again$"
    for load in (ppax.resume, ppax.load, lambda path: ppax.fit(agent, env, 64, num_steps=8, init_from=path)):
        with pytest.raises(CheckpointError, match=sentence):
            load(run_dir)
    for command in ("resume", "evaluate"):
        assert main([command, str(run_dir), "--no-cache"]) == 5
        error = capsys.readouterr().err.strip()
        assert re.search(sentence, error)
        assert "\n" not in error
    assert {one: one.read_bytes() for one in run_dir.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_links_are_not_followed(folder, tmp_path, like, state, name):
    path = checkpoint.save(folder, state)
    shutil.move(path / name, tmp_path / "elsewhere")
    (path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=name):
        checkpoint.load(path, like)
    assert checkpoint.newest_valid(folder)[0] is None


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_a_link_of_the_size_in_the_manifest_is_not_followed(folder, tmp_path, name):
    """The size of a link is the length of its target's path: here the size that the manifest states."""
    target = f"{tmp_path}/" + "./" * 100 + "elsewhere"
    path = forge(folder, b"x" * len(target))
    shutil.move(path / name, tmp_path / "elsewhere")
    (path / name).symlink_to(target)
    assert (path / name).lstat().st_size == json.loads((path / MANIFEST).read_text())["bytes"]
    found, skipped = checkpoint.newest_valid(folder)
    assert found is None
    assert name in skipped[0]


def test_a_link_to_a_checkpoint_is_not_listed(folder, tmp_path, state):
    path = checkpoint.save(tmp_path / "other", state)
    folder.mkdir(parents=True)
    (folder / "0000000099").symlink_to(path)
    assert checkpoint.list_checkpoints(folder) == []


@pytest.mark.parametrize("name", [STATE, MANIFEST])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_without_waiting(folder, like, state, name):
    path = checkpoint.save(folder, state)
    manifest = json.loads((path / MANIFEST).read_text())
    (path / name).unlink()
    if name == STATE:
        reseal(path, manifest | {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()})
    os.mkfifo(path / name)
    caught = []

    def attempt():
        try:
            checkpoint.load(path, like)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(3.0)
    waiting = thread.is_alive()
    if waiting:  # end the thread
        os.close(os.open(path / name, os.O_WRONLY))
        thread.join()
    assert not waiting
    assert isinstance(caught[0], CheckpointError)


BOMB = 256 * 2**20


def peak_of(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_a_file_larger_than_the_state_is_not_read(folder, like, state, name):
    """A sparse file of the size in its manifest: refused because the state is smaller, before it is read."""
    path = checkpoint.save(folder, state)
    os.truncate(path / name, BOMB)
    if name == STATE:
        manifest = json.loads((path / MANIFEST).read_text())
        reseal(path, manifest | {"bytes": BOMB})

    def attempt():
        with pytest.raises(CheckpointError, match=name):
            checkpoint.load(path, like)

    assert peak_of(attempt) < 32 * 2**20


def test_searching_the_newest_uses_constant_memory(folder, state):
    path = checkpoint.save(folder, state)
    os.truncate(path / STATE, BOMB)
    manifest = json.loads((path / MANIFEST).read_text())
    reseal(path, manifest | {"bytes": BOMB})
    assert peak_of(lambda: checkpoint.newest_valid(folder)) < 32 * 2**20


def test_a_zip_file_is_refused(tmp_path, like):
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../outside", b"\0" * 2**22)
    path = forge(tmp_path / "run", archive.read_bytes())
    with pytest.raises(CheckpointError, match=STATE):
        checkpoint.load(path, like)
    assert not (tmp_path / "outside").exists()


# ---------------------------------------------------------------- no deserialised code

FORBIDDEN_IMPORTS = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def violations(source):
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
                yield f"line {node.lineno}: {called.id}()"
            if isinstance(called, ast.Attribute) and called.attr in ("unsafe_load", "load_module", "import_module"):
                yield f"line {node.lineno}: {called.attr}()"
            pickles = [keyword.value for keyword in node.keywords if keyword.arg == "allow_pickle"]
            if any(not isinstance(value, ast.Constant) or value.value is not False for value in pickles):
                yield f"line {node.lineno}: allow_pickle"
        for name in names:
            if set(name.split(".")) & FORBIDDEN_IMPORTS:
                yield f"line {node.lineno}: imports {name}"


# Imports of modules named in the source, and data between this process and workers that it has started; actors of Ray
# among them, whose transport pickles everything: none of it is ever in a file
HARMLESS = {
    ("common.py", "import_module()"),
    ("gymnasium.py", "load_module()"),  # ppax's own: of packages that the user trusts
    ("bench.py", "compile()"),  # ppax's own
    ("pictures.py", "import_module()"),
    ("imports.py", "import_module()"),  # of packages that the user trusts
    ("installation.py", "import_module()"),  # ppax's own, and jax
    ("registry.py", "import_module()"),
    ("tensor_batch.py", "import_module()"),
    ("worker_process.py", "import_module()"),
    ("ray_actor.py", "import_module()"),
    ("batch.py", "imports cloudpickle"),
    ("workers.py", "imports cloudpickle"),
    ("untrusted.py", "imports yaml"),  # its parser alone: no tag constructs anything
}


def test_the_package_deserialises_no_code():
    sources = sorted(Path(ppax.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    found = [f"{path.name} {text}" for path in sources for text in violations(path.read_text(encoding="utf-8"))]
    assert [x for x in found if (x.split()[0], x.partition(": ")[2]) not in HARMLESS] == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from dill import loads", "import os, marshal", "eval('1')", "np.load(f, allow_pickle=True)"],
)
def test_the_search_finds_every_forbidden_call(source):
    assert list(violations(source))


def test_a_temporary_folder_of_a_killed_process_does_not_stop_the_next_write(tmp_path):
    (tmp_path / ".tmp-0000000010").mkdir()
    checkpoint.replace(tmp_path / "0000000010", {"a": b"1"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000010"]
