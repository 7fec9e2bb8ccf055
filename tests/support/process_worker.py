"""One process of a run: `python process_worker.py CASE RUN_DIR STEPS PORT PROCESS OF`; resumes a run that is there."""

import sys
from pathlib import Path

import jax

CASES = ("plain", "memory", "groups")


def parts(case):
    """Return the agent and the environment of a case."""
    import ppax
    from ppax.networks.memories import GRU
    from ppax.ppo.minibatches import Prioritised

    few = {"num_epochs": 2}
    if case == "groups":
        env = ppax.envs.grouped(ppax.make("Pursuit-3", 8), {"prey": [0], "hunters": [1, 2]})
        one = {name: ppax.PPO(ppax.networks.mlp(group, (8,)), **few) for name, group in env.groups.items()}
        return ppax.Groups(one, env.sizes), env
    env = ppax.make("CartPole-v1", 8)
    if case == "memory":
        network = ppax.networks.mlp(env, (8,), memory=GRU(8))
        own = {"normalize_obs": True, "normalize_reward": True, "minibatch": Prioritised(num_minibatches=2)}
        return ppax.PPO(network, seq_len=8, **few, **own), env
    return ppax.PPO(ppax.networks.mlp(env, (8,)), **few), env


def main():
    case, run_dir, steps, port, process, of = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", 1)
    import ppax
    from ppax.devices import processes

    if int(of) > 1:
        processes.join(f"127.0.0.1:{port}", int(process), int(of))
    if (Path(run_dir) / "checkpoints").exists():
        ppax.resume(run_dir, console=False, total_steps=int(steps))
    else:
        log = ppax.Log(every=5, console=False, checkpoint_seconds=0.0)
        ppax.fit(*parts(case), total_steps=int(steps), num_steps=16, run_dir=run_dir, log=log)


if __name__ == "__main__":
    main()
