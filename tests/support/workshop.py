"""Environment of Gymnasium with Dict actions and masks of them, in a file that workers can import."""

import gymnasium
import numpy as np
from gymnasium import spaces

ACTION = spaces.Dict(
    {
        "move": spaces.Discrete(3, start=1),
        "aim": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "tools": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]),
    }
)


class Workshop(gymnasium.Env):
    """Five steps; which moves and tools are allowed changes with the step, and an action that is not is an error.

    At the third step no mask of the tools is given, which allows all. The reward is 1 where the move is the last one
    that is allowed.
    """

    observation_space = spaces.Box(0.0, 5.0, (1,), np.float32)
    action_space = ACTION

    def __init__(self, form="dict"):
        self.form = form

    def _masks(self):
        move = np.array([True, self.time % 2 == 0, self.time % 2 == 1])
        tools = (np.array([[1, 0], [1, 1]])[:, :: 1 if self.time % 2 else -1], (np.array([1, 0]), np.array([0, 1, 1])))
        return {"move": move, "tools": None if self.time == 2 else tools}

    def _info(self):
        return {
            "action_mask": {
                "dict": self._masks(),
                "list": [1, 2],
                "key": {"speed": 1},
                "box": self._masks() | {"aim": [1]},
            }[self.form]
        }

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.float32([0.0]), self._info()

    def step(self, action):
        masks = self._masks()
        assert ACTION.contains(action), action
        assert masks["move"][action["move"] - 1]
        if masks["tools"] is not None:
            bits, (first, second) = masks["tools"]
            assert all(bits[i, action["tools"][0][i]] for i in range(2))
            assert first[action["tools"][1][0]]
            assert second[action["tools"][1][1]]
        reward = float(action["move"] - 1 == np.flatnonzero(masks["move"])[-1])
        self.time += 1
        return np.float32([self.time]), reward, self.time == 5, False, self._info()
