"""TensorBoard logger: its event files, read record by record."""

import io
import math
import struct
import tomllib

import numpy as np
import pytest
from PIL import Image

from ppax import config
from ppax.core.protocols import Artifact, LoggedRun
from ppax.loggers import EventFiles, TensorBoard

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
    logger = EventFiles(tmp_path)
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
    assert hyperparameters(tmp_path / "run" / "tensorboard")["num_envs"].number_value == 2.0
    (shown,) = texts(tmp_path / "run" / "tensorboard")
    assert tomllib.loads(shown) == config.read(tmp_path / "run" / "run.toml")


@pytest.mark.parametrize(("iteration", "kept"), [(2, [1, 2]), (0, [])], ids=["checkpoint", "no checkpoint"])
def test_a_killed_and_resumed_run_hides_the_rows_after_its_checkpoint(tmp_path, iteration, kept):
    """TensorBoard drops events from the step on at which a later file says that it starts."""
    first = TensorBoard().open(LoggedRun("mine", tmp_path, "", {}, "", 0, 0))
    for one in (1, 2, 3):
        first.log({"iteration": one, "env_steps": 100 * one})
    first.close()
    logged = [(e.step, v.simple_value) for e in events(tmp_path / "tensorboard") for v in e.summary.value]
    TensorBoard().open(LoggedRun("mine", tmp_path, "", {}, "", iteration, 100 * iteration)).close()
    starts = [e.step for e in events(tmp_path / "tensorboard") if e.HasField("session_log")]
    assert [value for step, value in logged if value and step < max(starts)] == kept


def hyperparameters(folder):
    """Values of the hyperparameters by name, as TensorBoard's plugin reads them."""
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    values = [v for e in events(folder) for v in e.summary.value if v.tag == "_hparams_/session_start_info"]
    (data,) = [HParamsPluginData.FromString(value.metadata.plugin_data.content) for value in values]
    return data.session_start_info.hparams


def texts(folder):
    """Texts, without the indentation of blocks of code."""
    values = [v for e in events(folder) for v in e.summary.value if v.metadata.plugin_data.plugin_name == "text"]
    assert {value.tag for value in values} <= {"run.toml/text_summary"}
    lines = [value.tensor.string_val[0].decode().splitlines() for value in values]
    assert all(line.startswith("    ") for text in lines for line in text)
    return ["\n".join(line[4:] for line in text) for text in lines]


def test_options_are_hyperparameters_of_their_type(tmp_path):
    options = {"env": "CartPole-v1", "num_envs": 64, "agent.learning_rate": 3e-4, "log.console": True, "stop": None}
    run = LoggedRun("mine", tmp_path, "", options, "num_envs = 64\nx = '[link](http://a)'", 0, 0)
    TensorBoard().open(run).close()
    found = hyperparameters(tmp_path / "tensorboard")
    assert found["env"].string_value == "CartPole-v1"
    assert found["num_envs"].number_value == 64.0
    assert found["agent.learning_rate"].number_value == 3e-4
    assert found["log.console"].bool_value is True
    assert found["stop"].string_value == "None"
    assert texts(tmp_path / "tensorboard") == [run.run_file]


def test_a_film_is_a_moving_picture(tmp_path):
    frames = [Image.fromarray(np.full((5, 7, 3), 40 * i, np.uint8)) for i in range(4)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:], duration=40)
    logger = EventFiles(tmp_path / "events")
    logger.store(Artifact("film", {"a.gif": tmp_path / "a.gif"}, 64))
    logger.close()
    (found,) = [(e.step, v) for e in events(tmp_path / "events") for v in e.summary.value]
    assert (found[0], found[1].tag) == (64, "film")
    assert (found[1].image.height, found[1].image.width) == (5, 7)
    with Image.open(io.BytesIO(found[1].image.encoded_image_string)) as film:
        assert film.n_frames == 4


def test_log_tensorboard_without_a_run_directory_is_refused():
    """Event files need a directory; ConfigError instead of a run without them."""
    import ppax

    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    with pytest.raises(ppax.ConfigError, match=r"log.tensorboard = true: .* run_dir="):
        ppax.fit(agent, env, 32, num_steps=8, log=config.Log(tensorboard=True, console=False))
