"""TensorBoard logger: its event files, read record by record."""

import math
import struct

import pytest

from ppax import config
from ppax.loggers import TensorBoard

pytest.importorskip("tensorboardX")


def events(folder):
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.glob("events*")):
        data = file.read_bytes()
        while data:  # TFRecord: length, its checksum, the record, its checksum
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_rows_are_scalars_over_env_steps(tmp_path):
    logger = TensorBoard(tmp_path)
    logger.log({"iteration": 1, "env_steps": 100, "loss": 0.5, "episode_return": math.nan})
    logger.log({"iteration": 2, "env_steps": 2**33, "loss": 0.25, "episode_return": 7.0})
    logger.close()
    found = {(e.step, v.tag): v.simple_value for e in events(tmp_path) for v in e.summary.value}
    assert found == {
        (100, "iteration"): 1.0,
        (100, "loss"): 0.5,  # NaN (no finished episode) is not written
        (2**33, "iteration"): 2.0,
        (2**33, "loss"): 0.25,
        (2**33, "episode_return"): 7.0,
    }


def test_log_tensorboard_writes_every_row(tmp_path):
    import ppax

    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    log = config.Log(tensorboard=True, console=False)
    run = ppax.fit(agent, env, 32, num_steps=8, run_dir=tmp_path / "run", log=log)
    steps = {e.step for e in events(tmp_path / "run" / "tensorboard") for v in e.summary.value if v.tag == "loss"}
    assert steps == {row["env_steps"] for row in run.history}


def test_log_tensorboard_without_a_run_directory_is_refused():
    """Event files need a directory; ConfigError instead of a run without them."""
    import ppax

    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    with pytest.raises(ppax.ConfigError, match=r"log.tensorboard = true: .* run_dir="):
        ppax.fit(agent, env, 32, num_steps=8, log=config.Log(tensorboard=True, console=False))
