"""Script of test_split_options.py: one update on one device and on two, printed as JSON."""

import dataclasses
import json
import sys

import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 2)

import ppax  # noqa: E402
from ppax.devices.layout import Program  # noqa: E402
from ppax.envs import TimeLimit, VectorEnv, builtin  # noqa: E402
from ppax.extensions import KLControl, RewardSpreading  # noqa: E402
from ppax.networks import mlp  # noqa: E402
from ppax.ppo.advantages import VTrace  # noqa: E402
from ppax.ppo.losses import KLPenalty  # noqa: E402
from ppax.ppo.minibatches import Prioritised, Shuffle  # noqa: E402
from ppax.ppo.optimizers import ActorCritic  # noqa: E402

ENV = VectorEnv(TimeLimit(builtin.CartPole(), 7), 8)
AGENTS = {
    "epoch": ppax.PPO(
        mlp(ENV, hidden=(8,)),
        advantage=VTrace(),
        minibatch=Shuffle(2),
        recompute=ppax.recompute.Epoch(),
        extensions=(RewardSpreading(0.5), KLControl(2e-3, 1e-2, rate_max=0.1)),
        learning_rate=0.01,
    ),
    "minibatch": ppax.PPO(
        mlp(ENV, hidden=(8,)),
        advantage=VTrace(),
        loss=KLPenalty(),
        minibatch=Prioritised(num_minibatches=2),
        recompute=ppax.recompute.Minibatch(),
        extensions=(KLControl(coef_target=1e-2),),
        seq_len=4,
        normalize_advantage="rollout",
        optimizer=ActorCritic(actor_epochs=3, actor_max_grad_norm=1.0, critic_max_grad_norm=1.0),
        max_grad_norm=None,
        learning_rate=0.01,
    ),
}


def result(agent, devices):
    agent = dataclasses.replace(agent, program=Program(devices=devices))
    state = ppax.start(agent, ENV, 12, jax.random.key(0))
    start = jax.flatten_util.ravel_pytree(state.learner.params)[0]
    out = jax.jit(ppax.train)(agent, ENV, state, 2, 10)
    moved = np.asarray(jax.flatten_util.ravel_pytree(out.state.learner.params)[0] - start)
    control = [float(x) for x in jax.tree.leaves(out.state.learner.extensions)]
    metrics = {name: float(x) for name, x in out.metrics.items() if np.isfinite(x)}
    return {"moved": moved.tolist(), "control": control, "metrics": metrics}


print(json.dumps([result(AGENTS[sys.argv[1]], devices) for devices in (1, 2)]))
