"""Errors about unknown names of arguments and options, which say what to write instead.

TABLE has the names of settings in other libraries. Stable-Baselines3 (with sb3-contrib and its Zoo), CleanRL and
PureJaxRL have a column each; `others` are names of rl_games, rsl_rl, Brax, RLlib, rl8, Tianshou and Spinning Up that
have one clear meaning. docs/glossary.md shows it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


# Tables of the agent in versions before the first release, and the extension that each is now: in run files, in Python
FORMER = {
    "kl": ("kl_control", "KLControl"),
    "entropy": ("entropy_target", "EntropyTarget"),
    "intrinsic": ("rnd", "RND"),
    "auxiliary": ("symmetry", "Symmetry"),
    "phase": ("ppg", "PPG"),
}
OF_AGENT = re.compile(r"(?P<table>(groups\.[^.]+\.)?agent)\.(?P<name>[^.]+)")  # option of the run's agent or a group's


class SettingNames(NamedTuple):
    """Setting of ppax with its names in other libraries, a row of TABLE; case and dashes of the names are ignored."""

    option: str  # in a run file; "" where no option says it
    python: str  # where it stands in Python; "..." is its value
    sb3: tuple[str, ...] = ()
    cleanrl: tuple[str, ...] = ()
    purejaxrl: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    value: str = ""  # of the option that has this meaning; "" for any
    note: str = ""  # difference in meaning

    @property
    def name(self) -> str:
        """Last name of this setting's option: "clip_eps" of agent.loss.clip_eps; "" if no option sets it."""
        return self.option.rpartition(".")[2]

    @property
    def difference(self) -> str:
        """Text, beginning with a comma, on how this setting differs in meaning from other libraries; else ""."""
        return f", {self.note}" if self.note else ""

    @property
    def in_python(self) -> str:
        """Text that says what to write in Python for this setting, and how its meaning differs from elsewhere."""
        return f"{self.python}{self.difference}"

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """All names of this setting in other libraries."""
        return self.sb3 + self.cleanrl + self.purejaxrl + self.others


def refusing_unknown(function: Callable[P, T]) -> Callable[P, T]:
    """Return `function`, changed to raise for unknown keyword arguments a TypeError that says what to write instead."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*values: P.args, **options: P.kwargs) -> T:
        unknown = next((name for name in options if name not in names), None)
        if unknown is not None:
            raise TypeError(f"{function.__name__} has no argument {unknown}: {remedy(unknown, names)}")
        return function(*values, **options)

    return checked


def remedy(name: str, names: list[str]) -> str:
    """Return a text that says what to write instead of `name`, which is none of a function's arguments `names`."""
    row = meaning(name)
    if row and row.python.startswith("ppax.PPO(network, extensions=") and "extensions" in names:
        return f"write {row.python.removeprefix('ppax.PPO(network, ').removesuffix(')')}{row.difference}"
    if row and row.name in names and f"{row.name}=" in row.python:
        return f"write {row.name}=...{row.difference}"
    if row:
        return f"write {row.in_python}"
    if name in FORMER and "extensions" in names:
        return f"write extensions=(ppax.extensions.{FORMER[name][1]}(...),)"
    similar = difflib.get_close_matches(name.lower(), names, n=1)
    return f"write {similar[0]}=..." if similar else f"it has {', '.join(names)}"


def extension_of(path: str) -> str:
    """Return the table of run files that replaces `path`, a table of former versions; "" for any other option.

    For agent.kl it is "[agent.extensions.kl_control]".
    """
    found = OF_AGENT.match(path)
    former = FORMER.get(found["name"]) if found else None
    return f"[{found['table']}.extensions.{former[0]}]" if found and former else ""


def meaning(name: str) -> SettingNames | None:
    """Return the setting that a name stands for, in another library or as the last name of an option.

    It is None where the name is unknown.
    """
    return _by_name().get(_plain(name)) if name not in ("", "part") else None


def own_name(name: str) -> str:
    """Return the last name of the ppax option that `name`, of another library, stands for.

    An unknown `name` is returned unchanged.
    """
    row = meaning(name)
    return row.name if row and row.option else name


@functools.cache
def _by_name() -> dict[str, SettingNames]:
    """Return the rows of TABLE by name: a row by its names in other libraries, and by its option's last name in ppax.

    If a name is in several rows, it stands for the first row that has it in another library, or else for the first one.
    """
    elsewhere = [(name, row) for row in TABLE for name in row.elsewhere]
    rows: dict[str, SettingNames] = {}
    for name, setting in elsewhere + [(row.name, row) for row in TABLE]:
        rows.setdefault(_plain(name), setting)
    return rows


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


ROWS = (
    "the number of minibatches, each of num_envs * num_steps / num_minibatches rows; for a number of rows write "
    'minibatch.part = "shuffle_rows" and minibatch.rows, in Python ppax.minibatches.ShuffleRows(rows=...)'
)
STEPS = "in steps of all environments together: iterations * num_envs * num_steps"
TABLE = (
    SettingNames(
        "agent.learning_rate",
        "ppax.PPO(network, learning_rate=...)",
        ("learning_rate",),
        ("learning_rate",),
        ("LR",),
        ("pi_lr",),
    ),
    SettingNames(
        "total_steps",
        "ppax.fit(agent, env, total_steps=...)",
        ("total_timesteps", "n_timesteps"),
        ("total_timesteps",),
        ("TOTAL_TIMESTEPS",),
        ("num_timesteps", "timesteps"),
    ),
    SettingNames(
        "total_steps",
        "ppax.fit(agent, env, total_steps=...)",
        cleanrl=("num_iterations", "num_updates"),
        purejaxrl=("NUM_UPDATES",),
        others=("max_iterations", "max_epochs"),
        note=STEPS,
    ),
    SettingNames(
        "num_envs",
        "ppax.make(name, num_envs=...)",
        ("n_envs",),
        ("num_envs",),
        ("NUM_ENVS",),
        ("num_actors", "num_workers"),
    ),
    SettingNames(
        "num_steps",
        "ppax.fit(agent, env, num_steps=...)",
        ("n_steps",),
        ("num_steps",),
        ("NUM_STEPS",),
        (
            "horizon_length",
            "num_steps_per_env",
            "unroll_length",
            "rollout_length",
            "rollout_fragment_length",
            "horizon",
        ),
    ),
    SettingNames(
        "num_steps",
        "ppax.fit(agent, env, num_steps=...)",
        others=("train_batch_size",),
        note="the steps of each environment: rows of a rollout / num_envs",
    ),
    SettingNames(
        "agent.num_epochs",
        "ppax.PPO(network, num_epochs=...)",
        ("n_epochs",),
        ("update_epochs",),
        ("UPDATE_EPOCHS",),
        (
            "mini_epochs",
            "num_learning_epochs",
            "num_updates_per_batch",
            "repeat_per_collect",
            "num_sgd_iter",
            "num_sgd_iters",
        ),
    ),
    SettingNames(
        "agent.minibatch.num_minibatches",
        "ppax.PPO(network, minibatch=ppax.minibatches.Shuffle(num_minibatches=...))",
        cleanrl=("num_minibatches",),
        purejaxrl=("NUM_MINIBATCHES",),
        others=("num_mini_batches", "n_minibatches", "nminibatches"),
    ),
    SettingNames(
        "agent.minibatch.num_minibatches",
        "ppax.PPO(network, minibatch=ppax.minibatches.Shuffle(num_minibatches=...))",
        ("batch_size",),
        ("minibatch_size",),
        ("MINIBATCH_SIZE",),
        ("mini_batch_size", "sgd_minibatch_size"),
        note=ROWS,
    ),
    SettingNames(
        "agent.gamma",
        "ppax.PPO(network, gamma=...)",
        ("gamma",),
        ("gamma",),
        ("GAMMA",),
        ("discount", "discounting", "discount_factor"),
    ),
    SettingNames(
        "agent.advantage.gae_lambda",
        "ppax.PPO(network, advantage=ppax.advantages.GAE(gae_lambda=...))",
        ("gae_lambda",),
        ("gae_lambda",),
        ("GAE_LAMBDA",),
        ("lam", "lambda", "lambda_", "tau"),
    ),
    SettingNames(
        "agent.loss.clip_eps",
        "ppax.PPO(network, loss=ppax.losses.ClippedSurrogate(clip_eps=...))",
        ("clip_range",),
        ("clip_coef",),
        ("CLIP_EPS",),
        ("clip", "e_clip", "eps_clip", "clip_param", "clip_ratio", "clipping_epsilon"),
    ),
    SettingNames(
        "agent.critic.value_clip",
        "ppax.PPO(network, critic=ppax.critics.Regression(value_clip=...))",
        ("clip_range_vf",),
        ("clip_vloss",),
        others=("value_clip", "clip_value", "use_clipped_value_loss"),
    ),
    SettingNames(
        "agent.critic.huber_delta",
        "ppax.PPO(network, critic=ppax.critics.Regression(huber_delta=...))",
        others=("vf_clip_param",),
        note="against large errors; there is no limit of the loss, above which the critic would get no gradient",
    ),
    SettingNames(
        "agent.ent_coef",
        "ppax.PPO(network, ent_coef=...)",
        ("ent_coef",),
        ("ent_coef",),
        ("ENT_COEF",),
        ("entropy_coef", "entropy_coeff", "entropy_cost"),
    ),
    SettingNames(
        "agent.vf_coef",
        "ppax.PPO(network, vf_coef=...)",
        ("vf_coef",),
        ("vf_coef",),
        ("VF_COEF",),
        ("value_coef", "critic_coef", "value_loss_coef", "vf_loss_coeff", "vf_loss_coefficient", "vf_coeff"),
    ),
    SettingNames(
        "agent.max_grad_norm",
        "ppax.PPO(network, max_grad_norm=...)",
        ("max_grad_norm",),
        ("max_grad_norm",),
        ("MAX_GRAD_NORM",),
        ("grad_norm", "grad_clip"),
    ),
    SettingNames(
        "agent.extensions.kl_control.target_kl",
        "ppax.PPO(network, extensions=(ppax.extensions.KLControl(target_kl=...),))",
        ("target_kl",),
        ("target_kl",),
    ),
    SettingNames(
        "agent.extensions.kl_control.rate_target",
        "ppax.PPO(network, extensions=(ppax.extensions.KLControl(rate_target=...),))",
        others=("desired_kl", "kl_threshold"),
    ),
    SettingNames(
        "agent.schedule.part",
        "ppax.PPO(network, schedule=ppax.schedules.Linear())",
        cleanrl=("anneal_lr",),
        purejaxrl=("ANNEAL_LR",),
        others=("lr_schedule",),
        value="linear",
    ),
    SettingNames(
        "agent.optimizer.eps",
        "ppax.PPO(network, optimizer=ppax.optimizers.Adam(eps=...))",
        others=("adam_eps", "adam_epsilon"),
    ),
    SettingNames(
        "agent.normalize_obs",
        "ppax.PPO(network, normalize_obs=True)",
        ("VecNormalize", "norm_obs"),
        ("NormalizeObservation",),
        ("NORMALIZE_ENV",),
        ("normalize_observations", "normalize_observation", "normalize_input", "empirical_normalization", "obs_norm"),
    ),
    SettingNames(
        "agent.normalize_reward",
        "ppax.PPO(network, normalize_reward=True)",
        ("norm_reward",),
        ("NormalizeReward",),
        others=("normalize_rewards", "reward_norm", "rew_norm"),
    ),
    SettingNames(
        "agent.normalize_advantage",
        "ppax.PPO(network, normalize_advantage=...)",
        ("normalize_advantage",),
        ("norm_adv",),
        others=("normalize_advantages", "advantage_normalization"),
    ),
    SettingNames(
        "agent.network.hidden",
        "ppax.networks.network(env, hidden=(...,))",
        ("net_arch", "policy_kwargs"),
        others=("hidden_sizes", "hidden_layer_sizes", "fcnet_hiddens", "units", "hidden_dims"),
    ),
    SettingNames(
        "agent.network.activation",
        "ppax.networks.network(env, activation=...)",
        ("activation_fn",),
        purejaxrl=("ACTIVATION",),
        others=("fcnet_activation",),
    ),
    SettingNames(
        "agent.network.memory.part",
        "ppax.networks.network(env, memory=ppax.networks.memories.LSTM(...))",
        ("RecurrentPPO", "MlpLstmPolicy"),
        ("ppo_atari_lstm",),
        others=("use_lstm", "use_rnn"),
        value="lstm",
    ),
    SettingNames(
        "agent.network.memory.part",
        "ppax.networks.network(env, memory=ppax.networks.memories.GRU(...))",
        purejaxrl=("ppo_rnn",),
        value="gru",
    ),
    SettingNames(
        "agent.extensions.held_noise.steps",
        "ppax.PPO(ppax.networks.network(env, gsde=True), extensions=(ppax.extensions.HeldNoise(steps=...),))",
        ("use_sde", "sde_sample_freq"),
        note="with agent.network.gsde = true",
    ),
    SettingNames(
        "agent.network.log_std_init",
        "ppax.networks.network(env, log_std_init=...)",
        ("log_std_init",),
        others=("init_noise_std",),
    ),
    SettingNames("seed", "ppax.fit(agent, env, seed=...)", ("seed",), ("seed",), ("SEED",), ("random_seed",)),
    SettingNames(
        "env",
        "ppax.make(name)",
        ("env_id",),
        ("env_id",),
        ("ENV_NAME",),
        ("env_name", "gym_id", "task"),
    ),
    SettingNames(
        "stagger",
        "ppax.make(name, num_envs, stagger=True)",
        others=("init_at_random_ep_len", "random_episode_start"),
        value="true",
    ),
    SettingNames("env_params", "ppax.make(name, num_envs, env_params=...)", ("env_kwargs",), others=("env_config",)),
    SettingNames(
        "log.to", "ppax.fit(agent, env, callbacks=[ppax.loggers.WandB()])", cleanrl=("track",), note='as "wandb"'
    ),
    SettingNames(
        "log.tensorboard",
        "ppax.fit(agent, env, log=ppax.Log(tensorboard=True))",
        ("tensorboard_log",),
    ),
    SettingNames("log.console", "ppax.fit(agent, env, log=ppax.Log(console=...))", ("verbose", "progress_bar")),
    SettingNames("log.every", "ppax.fit(agent, env, log=ppax.Log(every=...))", ("log_interval",)),
    SettingNames(
        "log.checkpoint_every",
        "ppax.fit(agent, env, log=ppax.Log(checkpoint_every=...))",
        ("save_freq",),
        others=("save_interval", "save_frequency"),
        note="in iterations",
    ),
    SettingNames(
        "eval.every",
        "ppax.fit(agent, env, evaluation=ppax.EvalSettings(every=...))",
        ("eval_freq",),
        others=("eval_interval",),
        note="in iterations",
    ),
    SettingNames(
        "eval.episodes",
        "ppax.fit(agent, env, evaluation=ppax.EvalSettings(every=10, episodes=...))",
        ("n_eval_episodes", "eval_episodes"),
        others=("num_eval_episodes", "episodes"),
    ),
    SettingNames(
        "",
        "ppax.fit(agent, env, evaluation=ppax.EvalSettings(every=10))",
        ("eval_env",),
        note="evaluations make environments of their own",
    ),
    SettingNames("", "ppax.fit(agent, env, callbacks=[...])", ("callback",)),
    SettingNames("stop", "ppax.fit(agent, env, stop=...)", ("StopTrainingOnRewardThreshold",)),
    SettingNames(
        "",
        "action masks of the environment, without an option",
        ("MaskablePPO", "ActionMasker"),
        ("invalid_action_masking",),
    ),
    SettingNames("", "ppax.fit(agent, env) or ppax.train", ("learn",), (), ("make_train",)),
    SettingNames("", "ppax.load(run_dir).act(obs)", ("predict",)),
)
