"""Hashes of trained parameters, to check that a refactoring leaves training bit-identical.

    python tests/support/parameter_hashes.py --record FILE     train four runs and write their hashes
    python tests/support/parameter_hashes.py --compare FILE    train again and compare; exit code 1 if one differs

Hashes depend on the machine and the version of JAX, so none are committed.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import jax
import numpy as np

import ppax
from ppax.networks import memories

KEY = 7


def hash_of(params) -> str:
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def native(agent, env) -> str:
    state = ppax.start(agent, env, num_steps=32, key=jax.random.key(KEY))
    state, _ = ppax.compile(agent, env, state)(agent, env, state, 4)
    return hash_of(state.learner)


def cartpole() -> str:
    env = ppax.make("CartPole-v1", 16)
    return native(ppax.PPO(ppax.networks.mlp(env), normalize_obs=True, normalize_reward=True), env)


def gru() -> str:
    env = ppax.make("CartPole-v1-masked", 16)
    return native(ppax.PPO(ppax.networks.network(env, memory=memories.GRU(16)), seq_len=16), env)


def groups() -> str:
    env = ppax.envs.grouped(ppax.make("Pursuit-3", 8), {"prey": [0], "hunters": [1, 2]})
    agents = {name: ppax.PPO(ppax.networks.network(group)) for name, group in env.groups.items()}
    return native(ppax.Groups(agents, env.sizes), env)


def host() -> str:
    env = ppax.make("gymnasium/CartPole-v1", 4)
    run = ppax.fit(ppax.PPO(ppax.networks.mlp(env)), env, total_steps=4 * 128 * 4, seed=KEY)
    return hash_of(run.state.learner)


RUNS = {"CartPole-v1": cartpole, "GRU": gru, "Groups": groups, "host": host}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--record", type=Path)
    options.add_argument("--compare", type=Path)
    options = options.parse_args()
    found = {name: run() for name, run in RUNS.items()}
    print(json.dumps(found, indent=1))
    if options.record:
        options.record.write_text(json.dumps(found))
    if options.compare:
        before = json.loads(options.compare.read_text())
        unlike = [name for name in RUNS if found[name] != before[name]]
        print("differ: " + ", ".join(unlike) if unlike else "bit-identical")
        return bool(unlike)
    return 0


if __name__ == "__main__":
    sys.exit(main())
