"""Service that acts for clients over HTTP: one policy, requests answered in batches, a bounded queue.

python examples/serve.py runs/mine --port 8000        # a run directory, a bundle, or hf://OWNER/NAME
curl localhost:8000/act -d '{"observation": [0.0, 0.1, 0.0, -0.1]}'   # {"action": 1}; with --return-value also V

GET /health is 200 when the policy is compiled. POST /act is 422 for an observation that does not fit, 503 when too many
requests wait. Needs pip install "ppax[serve]".
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import numpy as np
import uvicorn
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import ppax

LARGEST = 2**24  # bytes of a request


class Waiting(NamedTuple):
    """Request in the queue: its observation, and the future of its answer."""

    obs: Any  # array, or dict of arrays
    answer: asyncio.Future[dict[str, Any]]


class Batcher:
    """Queue in front of a policy: whatever waits while one batch is computed is the next batch."""

    def __init__(
        self, policy: Any, max_batch: int, max_waiting: int, deterministic: bool = True, return_value: bool = False
    ):
        self.policy, self.max_batch = policy, max_batch
        self.deterministic, self.return_value = deterministic, return_value
        self.queue: asyncio.Queue[Waiting] = asyncio.Queue(max_waiting)

    def compile(self) -> None:
        """Act once with each size of batch that `policy.act` compiles: powers of two."""
        space, size = self.policy.spec.observation_space, 1
        while size < 2 * self.max_batch:
            self._act(create_empty_array(space, min(size, self.max_batch)))
            size *= 2

    async def act(self, obs: Any) -> dict[str, Any]:
        """Return the answer for one observation, {"action": ...}; asyncio.QueueFull if too many wait."""
        waiting = Waiting(obs, asyncio.get_running_loop().create_future())
        self.queue.put_nowait(waiting)
        return await waiting.answer

    async def work(self) -> None:
        """Answer requests until cancelled; act in a thread, so that requests can arrive meanwhile."""
        while True:
            batch = [await self.queue.get()]
            while len(batch) < self.max_batch and not self.queue.empty():
                batch.append(self.queue.get_nowait())
            try:
                answers = await asyncio.to_thread(self._act, stacked([one.obs for one in batch]))
            except Exception as error:
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():  # its client may be gone
                    one.answer.set_result(answer)

    def _act(self, obs: Any) -> list[dict[str, Any]]:
        """Return the answers for a batch of observations: actions and, if it is asked for, V."""
        out = self.policy.act(obs, deterministic=self.deterministic, return_value=self.return_value)
        if not self.return_value:
            return [{"action": action} for action in out.tolist()]
        pairs = zip(out.action.tolist(), out.value.tolist(), strict=True)
        return [{"action": action, "value": value} for action, value in pairs]


def stacked(observations: list[Any]) -> Any:
    """Return a batch of observations, as an array or a dict of arrays."""
    if isinstance(observations[0], dict):
        return {name: stacked([one[name] for one in observations]) for name in observations[0]}
    return np.stack(observations)


def is_served(space: spaces.Space) -> bool:
    """Return whether a space is of arrays, or of dicts of them."""
    return all(map(is_served, space.values())) if isinstance(space, spaces.Dict) else isinstance(space, spaces.Box)


def application(
    policy: Any,
    max_batch: int = 64,
    max_waiting: int = 256,
    deterministic: bool = True,
    return_value: bool = False,
) -> Starlette:
    """Return the service of `policy`, without memory and masks, whose observations are arrays or dicts of them."""
    spec = policy.spec
    if not is_served(spec.observation_space) or spec.memory or spec.masked or spec.num_agents > 1:
        raise SystemExit(f"this example serves one agent with array observations, without memory and masks; got {spec}")
    batcher = Batcher(policy, max_batch, max_waiting, deterministic, return_value)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        batcher.compile()  # before the first request is taken
        worker = asyncio.create_task(batcher.work())
        yield
        worker.cancel()

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "environment": spec.env, "waiting": batcher.queue.qsize()})

    async def act(request: Request) -> JSONResponse:
        try:
            answer = await batcher.act(observation(await body_of(request), spec.observation_space))
        except asyncio.QueueFull:
            raise HTTPException(503, "too many requests wait", {"Retry-After": "1"}) from None
        return JSONResponse(answer)

    routes = [Route("/health", health), Route("/act", act, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


async def body_of(request: Request) -> bytes:
    """Return the body; error 413 if it is larger than LARGEST."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST:
            raise HTTPException(413, f"a request has at most {LARGEST} bytes")
    return data


def observation(body: bytes, space: spaces.Space) -> Any:
    """Parse {"observation": ...} as an element of the space; error 422 where it does not fit."""
    try:
        return element(json.loads(body)["observation"], space)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise HTTPException(422, f'must be {{"observation": numbers}}: {error}') from error


def element(value: Any, space: spaces.Space) -> Any:
    """Return numbers as an array of the space, a dict of them as a dict of arrays; error 422 where they do not fit."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space):
            raise HTTPException(422, f"observation must be an object with {', '.join(space)}")
        return {name: element(value[name], inner) for name, inner in space.items()}
    given = np.asarray(value)
    obs = given.astype(space.dtype)
    if space.dtype.kind in "iu" and not np.array_equal(obs, given):
        raise HTTPException(422, f"observation has numbers that are not whole numbers of {space.dtype}")
    if obs.shape != space.shape:
        raise HTTPException(422, f"observation has shape {obs.shape}: must be {space.shape}")
    if not np.isfinite(obs).all():
        raise HTTPException(422, "observation has entries that are not finite numbers")
    return obs


def main() -> None:
    """Load the policy and serve it until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serve a policy over HTTP.")
    parser.add_argument("policy", help="run directory, bundle, or hf://OWNER/NAME")
    parser.add_argument("--best", action="store_true", help="serve the best policy of the run, not the last")
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of taking the mode")
    parser.add_argument("--return-value", action="store_true", help="also answer with V of the observation")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="port; 0: any free one (default: 8000)")
    parser.add_argument("--max-batch", type=int, default=64, help="largest batch (default: 64)")
    parser.add_argument("--max-waiting", type=int, default=256, help="most requests that may wait (default: 256)")
    options = parser.parse_args()
    policy = ppax.load(options.policy, best=options.best)
    app = application(policy, options.max_batch, options.max_waiting, not options.sampled, options.return_value)
    with socket.create_server((options.host, options.port)) as listener:
        print(f"http://{options.host}:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
